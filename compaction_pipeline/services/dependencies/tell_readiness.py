"""Tells the one receiver of callbacks when what was awaited becomes ready, and when it is taken back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from threading import Lock

from compaction_pipeline.core.dependencies.ports import AwaitedAnswer, DependencyStore, ToldAs
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.dependencies.ready_time import Question
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import Look, ReadReadiness

_LOG = logging.getLogger(__name__)

AWAITED = timedelta(days=7)
"""So long after a request the receiver is told of each change."""
REPORTED_EVERY = timedelta(seconds=1)
"""A look at all tables gives way so often to those of which something was reported."""
_FAILURES = 5
"""A change that the receiver refuses lets others go on. After so many it is taken to be down until the next look."""
_AT_ONCE = 4
"""So many tables are looked at together."""
_CHUNK = 5 * _AT_ONCE
_SETTLED = timedelta(minutes=10)
"""So long a table that has not moved is not loaded again. What nobody foresaw is seen then."""

_AWAY = timedelta(minutes=1)
"""Who tells has a turn each second. After so long without one, another server has told."""

Send = Callable[[str, Readiness], None]
"""Sends an answer under an id. The same change has the same id, however often it is sent. Raises a CompactionError when nobody took it."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """The last look at a table, after which the receiver knew all about these `awaited` answers. What it did not take is missing."""

    look: Look
    awaited: Sequence[AwaitedAnswer]
    at: datetime


class TellReadiness:
    """The verbs await_answers, tell and tell_reported."""

    def __init__(self, readiness: ReadReadiness, memory: DependencyStore, clock: Clock) -> None:
        self._readiness = readiness
        self._memory = memory
        self._clock = clock
        self._failed_last: tuple[str, str] | None = None
        self._settled: dict[TableIdentifier, _Settled] = {}
        self._problems: dict[str, str] = {}
        self._turn_at = clock()

    def await_answers(self, table: TableIdentifier, asked: Question) -> tuple[Readiness, ...]:
        """Let the receiver be told for 7 days of each change of the answers. Return how they are now. Raises as `ReadReadiness`."""
        answers = self._readiness.answers(table, asked)
        for (uuid, ready), some in groupby(answers, key=lambda one: (one.table_uuid, one.ready)):
            # Who awaits what is ready gets it posted, also when it was before. That something was taken back is never left out.
            self._memory.await_answers(uuid, [one.what for one in some], self._clock() + AWAITED, anew=ready)
        self._memory.note_reported(table, self._clock())
        return answers

    def tell(self, send: Send, is_over: Callable[[], bool] = lambda: False) -> None:
        """Look at all tables of which something is awaited, and send what has changed. A table that fails is tried again the next time, and
        others go on. One that has not moved since it was looked at is not loaded.

        Nothing more is sent after five failures of the receiver, and when `is_over()` is true. The next look begins behind the last
        failure, so what the receiver never takes keeps nothing else from its turn.
        """
        self._note_turn()
        by_table = _by_table(self._in_turn())
        self._forget(by_table)
        unchanged = self._unchanged(by_table)
        left, reported_at = _FAILURES, self._clock()
        tables = [table for table in by_table if table not in unchanged]
        for begin in range(0, len(tables), _CHUNK):
            if self._clock() - reported_at >= REPORTED_EVERY:
                done = self.tell_reported(send, is_over)
                reported_at = self._clock()
                tables = [*tables[:begin], *(table for table in tables[begin:] if table not in done)]
            left -= self._tell_of_all({table: by_table[table] for table in tables[begin : begin + _CHUNK]}, send, left, is_over)

    def tell_reported(self, send: Send, is_over: Callable[[], bool] = lambda: False) -> frozenset[TableIdentifier]:
        """Do the same for tables of which something was reported just now, and return these. What fails is left to the next look at all
        tables."""
        self._note_turn()
        try:
            by_table = _by_table(self._memory.take_reported(self._clock()))
        except CompactionError:
            # Some reports may be taken, and nobody knows which.
            self._settled.clear()
            raise
        for table in by_table:
            self._settled.pop(table, None)
        self._tell_of_all(by_table, send, _FAILURES, is_over)
        return frozenset(by_table)

    def _tell_of_all(
        self, by_table: Mapping[TableIdentifier, Sequence[AwaitedAnswer]], send: Send, most: int, is_over: Callable[[], bool]
    ) -> int:
        """Send the changes of these tables, several at a time: most of the time they wait for files, the database and the receiver. Return
        how often the receiver failed; after `most` times no other table begins."""
        failures = 0
        counting = Lock()

        def of_one(table: TableIdentifier) -> None:
            nonlocal failures
            if failures < most and not is_over():
                failed = self._tell_of(table, by_table[table], send, most - failures, is_over)
                with counting:
                    failures += failed

        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="callbacks") as pool:
            list(pool.map(of_one, by_table))
        return min(failures, most)

    def _note_turn(self) -> None:
        """Forget what the receiver knew when another server may have told it meanwhile: that one took the reports."""
        now = self._clock()
        if now - self._turn_at >= _AWAY:
            self._settled.clear()
        self._turn_at = now

    def _in_turn(self) -> Sequence[AwaitedAnswer]:
        awaited = self._memory.awaited(self._clock())
        first = next((number for number, one in enumerate(awaited, start=1) if (one.uuid, one.what) == self._failed_last), 0)
        return [*awaited[first:], *awaited[:first]]

    def _forget(self, by_table: Mapping[TableIdentifier, Sequence[AwaitedAnswer]]) -> None:
        self._settled = {table: one for table, one in self._settled.items() if table in by_table}
        names = {str(table) for table in by_table} | {f"{table} {one.what}" for table, some in by_table.items() for one in some}
        self._problems = {name: text for name, text in self._problems.items() if name in names}

    def _unchanged(self, by_table: Mapping[TableIdentifier, Sequence[AwaitedAnswer]]) -> frozenset[TableIdentifier]:
        """The tables of which the receiver knows all, and nothing can have changed."""
        now = self._clock()
        same = {
            table: one.look for table, one in self._settled.items() if set(one.awaited) == set(by_table[table]) and now - one.at < _SETTLED
        }
        try:
            return self._readiness.unchanged(same)
        except CompactionError:
            # The look at each table says what is wrong.
            return frozenset()

    def _tell_of(self, table: TableIdentifier, awaited: Sequence[AwaitedAnswer], send: Send, most: int, is_over: Callable[[], bool]) -> int:
        """Send the changes of one table. Return how often the receiver failed; after `most` times nothing more is sent."""
        self._settled.pop(table, None)
        now = self._clock()
        try:
            look = self._readiness.look(table, [one.what for one in awaited])
            told, failures = self._send(look.answers, awaited, send, most, is_over)
        except CompactionError as error:
            self._warn(str(table), f"table={table} nobody is told what is ready: {error}")
            return 0
        self._problems.pop(str(table), None)
        for one in awaited:
            # What somebody awaited may mean nothing any more, after a field was dropped. It keeps nobody else waiting.
            if one.what in look.refused:
                self._warn(f"{table} {one.what}", f"nobody is told whether {one.what} is ready: {look.refused[one.what]}")
            else:
                self._problems.pop(f"{table} {one.what}", None)
        self._settled[table] = _Settled(look, told, now)
        return failures

    def _send(
        self, answers: Sequence[Readiness], awaited: Sequence[AwaitedAnswer], send: Send, most: int, is_over: Callable[[], bool]
    ) -> tuple[Sequence[AwaitedAnswer], int]:
        """Send what has changed. Return what is awaited as it is after that, without what the receiver did not take, and how often it
        failed."""
        by_what = {answer.what: answer for answer in answers}
        known: list[AwaitedAnswer] = []
        failures = 0
        for one in awaited:
            answer = by_what.get(one.what)
            # A table that was made anew under the name is another one.
            change = _change(one, answer) if answer is not None and answer.table_uuid == one.uuid else None
            if answer is None or change is None:
                known.append(one)
                continue
            if failures == most or is_over():
                break
            told, told_as = change
            try:
                send(f"{told}/{told_as.value}", answer)
            except CompactionError as error:
                _LOG.warning("table=%s the receiver was not told of %s: %s", one.table, one.what, error)
                self._failed_last = one.uuid, one.what
                failures += 1
            else:
                self._memory.note_told(one, told, told_as)
                known.append(replace(one, told=told, told_as=told_as))
        return known, failures

    def _warn(self, of: str, text: str) -> None:
        """Log what is wrong, and not again as long as nothing else is."""
        if self._problems.get(of) != text:
            self._problems[of] = text
            _LOG.warning("%s", text)


def _by_table(awaited: Sequence[AwaitedAnswer]) -> Mapping[TableIdentifier, Sequence[AwaitedAnswer]]:
    found: dict[TableIdentifier, list[AwaitedAnswer]] = {}
    for one in awaited:
        found.setdefault(one.table, []).append(one)
    return found


def _change(one: AwaitedAnswer, answer: Readiness) -> tuple[str, ToldAs] | None:
    """The change that the receiver is to be told: its id, and as what; None when it knows it. What it was never told to be ready is not
    taken back.

    What was taken back and is ready again is another change, also when nobody could be told in between.
    """
    knows = one.told_as in (ToldAs.READY, ToldAs.READY_AGAIN)
    told = one.told or ""
    if answer.ready and answer.ready_since is not None:
        since = answer.ready_since.isoformat(timespec="seconds")
        # Another rule counts withdrawals anew, but what stays ready has not changed.
        is_same = knows and answer.withdrawals == 0 and told.endswith(f"/{since}")
        change = told if is_same else f"{one.uuid}/{one.what}/{answer.withdrawals}/{since}", ToldAs.READY
        return change if change != (one.told, one.told_as) else None
    # What is taken back is what was told. Its id tells one time from another, whatever rules came in between.
    return (told or f"{one.uuid}/{one.what}/{answer.withdrawals}/{answer.rule}", ToldAs.WITHDRAWN) if knows else None
