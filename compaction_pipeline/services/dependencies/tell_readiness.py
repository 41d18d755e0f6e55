"""Tells the one receiver of callbacks when what was awaited becomes ready, and when it is taken back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby

from compaction_pipeline.core.dependencies.ports import AwaitedAnswer, DependencyStore
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.dependencies.ready_time import Question, Window, instant_of
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness

_LOG = logging.getLogger(__name__)

AWAITED = timedelta(days=7)
"""So long after a request the receiver is told of each change."""
_FAILURES = 5
"""A change that the receiver refuses lets the others of its table go on. After so many it is taken to be down until the next look."""

Send = Callable[[str, Readiness], None]
"""Sends an answer under an id. The same change has the same id, however often it is sent. Raises a CompactionError when nobody took it."""


class TellReadiness:
    """The verbs await_answers and tell."""

    def __init__(self, readiness: ReadReadiness, memory: DependencyStore, clock: Clock) -> None:
        self._readiness = readiness
        self._memory = memory
        self._clock = clock

    def await_answers(self, table: TableIdentifier, asked: Question) -> tuple[Readiness, ...]:
        """Let the receiver be told for 7 days of each change of the answers. Return how they are now. Raises as `ReadReadiness`."""
        answers = self._readiness.answers(table, asked)
        for uuid, some in groupby(answers, key=lambda one: one.table_uuid):
            self._memory.await_answers(uuid, [one.what for one in some], self._clock() + AWAITED)
        return answers

    def tell(self, send: Send) -> None:
        """Ask for all that is awaited, and send what has changed. A table that fails is tried again the next time, and others go on."""
        for table, awaited in groupby(self._memory.awaited(self._clock()), key=lambda one: one.table):
            try:
                self._tell_of(table, list(awaited), send)
            except CompactionError as error:
                _LOG.warning("table=%s nobody is told what is ready: %s", table, error)

    def _tell_of(self, table: TableIdentifier, awaited: Sequence[AwaitedAnswer], send: Send) -> None:
        by_what = {answer.what: answer for answer in self._answers(table, [one.what for one in awaited])}
        failures: list[CompactionError] = []
        for one in awaited:
            answer = by_what.get(one.what)
            # A table that was made anew under the name is another one.
            if answer is None or answer.table_uuid != one.uuid or answer.ready == bool(one.told):
                continue
            # Another rule counts withdrawals anew, so their number alone would give two changes the same id.
            since = answer.ready_since.isoformat(timespec="seconds") if answer.ready_since is not None else answer.rule
            try:
                send(f"{one.uuid}/{one.what}/{answer.withdrawals}/{since}/{'ready' if answer.ready else 'withdrawn'}", answer)
            except CompactionError as error:
                failures.append(error)
                if len(failures) == _FAILURES:
                    break
                continue
            self._memory.note_told(one.uuid, one.what, answer.ready)
        if failures:
            raise failures[0]

    def _answers(self, table: TableIdentifier, whats: Sequence[str]) -> Sequence[Readiness]:
        windows = {what: window for what in whats if (window := _window(what)) is not None}
        partitions = [what for what in whats if what not in windows]
        try:
            of_windows = self._readiness.windows(table, list(windows.values())) if windows else ()
            return (*of_windows, *(self._readiness.partitions(table, partitions) if partitions else ()))
        except ConfigError as error:
            if len(whats) > 1:
                # What somebody awaited may mean nothing any more, after a field was dropped. It keeps nobody else waiting.
                return [answer for what in whats for answer in self._answers(table, [what])]
            _LOG.warning("nobody is told whether %s is ready: %s", whats[0], error)
            return ()


def _window(what: str) -> Window | None:
    """The window that a text names; None for a partition. Partitions have an equals sign, windows have none."""
    if "=" in what:
        return None
    start, _, end = what.partition("/")
    return Window(instant_of(start), instant_of(end))
