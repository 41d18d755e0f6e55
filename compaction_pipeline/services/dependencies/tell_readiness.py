"""Tells the one receiver of callbacks when what was awaited becomes ready, and when it is taken back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby

from compaction_pipeline.core.dependencies.ports import TOLD_AGAIN, TOLD_READY, AwaitedAnswer, DependencyStore
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
"""A change that the receiver refuses lets others go on. After so many it is taken to be down until the next look."""

Send = Callable[[str, Readiness], None]
"""Sends an answer under an id. The same change has the same id, however often it is sent. Raises a CompactionError when nobody took it."""


class TellReadiness:
    """The verbs await_answers and tell."""

    def __init__(self, readiness: ReadReadiness, memory: DependencyStore, clock: Clock) -> None:
        self._readiness = readiness
        self._memory = memory
        self._clock = clock
        self._failed_last: tuple[str, str] | None = None

    def await_answers(self, table: TableIdentifier, asked: Question) -> tuple[Readiness, ...]:
        """Let the receiver be told for 7 days of each change of the answers. Return how they are now. Raises as `ReadReadiness`."""
        answers = self._readiness.answers(table, asked)
        for (uuid, ready), some in groupby(answers, key=lambda one: (one.table_uuid, one.ready)):
            # Who awaits what is ready gets it posted, also when it was before. That something was taken back is never left out.
            self._memory.await_answers(uuid, [one.what for one in some], self._clock() + AWAITED, anew=ready)
        return answers

    def tell(self, send: Send, is_over: Callable[[], bool] = lambda: False) -> None:
        """Ask for all that is awaited, and send what has changed. A table that fails is tried again the next time, and others go on.

        Nothing more is sent after five failures of the receiver, and when `is_over()` is true. The next look begins behind the last
        failure, so what the receiver never takes keeps nothing else from its turn.
        """
        left = _FAILURES
        for table, awaited in groupby(self._in_turn(), key=lambda one: one.table):
            if left == 0 or is_over():
                return
            try:
                left -= self._tell_of(table, list(awaited), send, left, is_over)
            except CompactionError as error:
                _LOG.warning("table=%s nobody is told what is ready: %s", table, error)

    def _in_turn(self) -> Sequence[AwaitedAnswer]:
        awaited = self._memory.awaited(self._clock())
        first = next((number for number, one in enumerate(awaited, start=1) if (one.uuid, one.what) == self._failed_last), 0)
        return [*awaited[first:], *awaited[:first]]

    def _tell_of(self, table: TableIdentifier, awaited: Sequence[AwaitedAnswer], send: Send, most: int, is_over: Callable[[], bool]) -> int:
        """Send the changes of one table. Return how often the receiver failed; after `most` times nothing more is sent."""
        by_what = {answer.what: answer for answer in self._answers(table, [one.what for one in awaited])}
        failures = 0
        for one in awaited:
            answer = by_what.get(one.what)
            # A table that was made anew under the name is another one.
            change = _change(one, answer) if answer is not None and answer.table_uuid == one.uuid else None
            if answer is None or change is None:
                continue
            if failures == most or is_over():
                break
            try:
                send(change, answer)
            except CompactionError as error:
                _LOG.warning("table=%s the receiver was not told of %s: %s", table, one.what, error)
                self._failed_last = one.uuid, one.what
                failures += 1
            else:
                self._memory.note_told(one, change)
        return failures

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


_WITHDRAWN = "/withdrawn"


def _change(one: AwaitedAnswer, answer: Readiness) -> str | None:
    """The change that the receiver is to be told; None when it knows it. What it was never told to be ready is not taken back.

    What was taken back and is ready again is another change, also when nobody could be told in between.
    """
    told = (one.told or "").removesuffix(TOLD_AGAIN)
    known = told.removesuffix(TOLD_READY) if told.endswith(TOLD_READY) else None
    if answer.ready and answer.ready_since is not None:
        since = answer.ready_since.isoformat(timespec="seconds")
        # Another rule counts withdrawals anew, but what stays ready has not changed.
        is_same = known is not None and answer.withdrawals == 0 and known.endswith(f"/{since}")
        change = told if is_same else f"{one.uuid}/{one.what}/{answer.withdrawals}/{since}{TOLD_READY}"
        return change if change != one.told else None
    # What is taken back is what was told. Its id tells one time from another, whatever rules came in between.
    return None if known is None else f"{known or f'{one.uuid}/{one.what}/{answer.withdrawals}/{answer.rule}'}{_WITHDRAWN}"


def _window(what: str) -> Window | None:
    """The window that a text names; None for a partition. Partitions have an equals sign, windows have none."""
    if "=" in what:
        return None
    start, _, end = what.partition("/")
    return Window(instant_of(start), instant_of(end))
