"""Finds out for the dependency center how far the tables are that its instances wait for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta

from compaction_pipeline.core.dependencies.center.inbox import NOTHING, Fact
from compaction_pipeline.core.dependencies.center.ports import CenterStore
from compaction_pipeline.core.dependencies.center.subjects import TABLE, THERE, WATERMARK, WINDOW, named_in, watermark_reached
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.services.dependencies.read_readiness import Look, ReadReadiness

_LOG = logging.getLogger(__name__)
TABLES = "tables"
"""The name of this detector: the source of its facts, and of what it missed."""
MOST_AWAITED = 100_000
TAKEN_BACK = timedelta(days=35)
"""So long a virtual job that succeeded by the data of a table is taken back with it."""
_AWAY = timedelta(minutes=1)
"""A server that did not look for so long may not have led, and another one may have taken the reports."""
_SETTLED = timedelta(minutes=10)
"""So long a table that has not moved is not loaded again. What nobody foresaw is seen then."""


class DetectTables:
    """The verbs are look (the patrol) and look_at_reported (what reports subscribe to).

    What the patrol finds of tables whose writers report counts as missed: a report was lost, or something changed without a commit.
    """

    def __init__(self, store: CenterStore, readiness: ReadReadiness, clock: Clock) -> None:
        self._store = store
        self._readiness = readiness
        self._clock = clock
        self._settled: dict[TableIdentifier, tuple[Look, frozenset[str], datetime]] = {}
        self._problems: dict[str, str] | None = None
        self._reporting: set[str] = set()
        self._turn_at = clock()

    def look(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Look at each table that is waited for, and post what has changed. Return how many facts that were.

        One that has not moved since the last look is not loaded. One that cannot be read is logged, and others go on: what was known of it
        stays.
        """
        self._note_turn()
        awaited = self._awaited(None)
        self._settled = {table: one for table, one in self._settled.items() if awaited.get(str(table)) == one[1]}
        self._forget_problems(awaited)
        unchanged = self._unchanged()
        asked = {name: keys for name, keys in awaited.items() if name not in unchanged}
        reporting = {name: keys for name, keys in asked.items() if name in self._reporting}
        missed = self._look_at(reporting, is_over, missed_by=TABLES)
        if missed:
            _LOG.warning(
                "%s found without a report, of tables whose writers report: see that each commit is reported", count_text(missed, "change")
            )
        return missed + self._look_at({name: keys for name, keys in asked.items() if name not in reporting}, is_over)

    def look_at_reported(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Do the same for tables of which something was reported since the last time."""
        self._note_turn()
        reported = self._store.take_reported()
        self._reporting |= reported
        return self._look_at(self._awaited(reported), is_over) if reported else 0

    def _note_turn(self) -> None:
        """Forget what was settled when another server may have led meanwhile."""
        now = self._clock()
        if now - self._turn_at >= _AWAY:
            self._settled.clear()
            self._problems = None
        self._turn_at = now

    def _awaited(self, names: Collection[str] | None) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        keys = self._store.awaited(TABLE, self._clock() - TAKEN_BACK, MOST_AWAITED, names)
        if len(keys) == MOST_AWAITED:
            self._warn("", f"more than {MOST_AWAITED} things are waited for, and some are not looked at: let fewer instances wait")
        for key in keys:
            found.setdefault(named_in(key)[TABLE], set()).add(key)
        return {name: frozenset(keys) for name, keys in found.items()}

    def _unchanged(self) -> frozenset[str]:
        now = self._clock()
        try:
            looks = {table: look for table, (look, _, at) in self._settled.items() if now - at < _SETTLED}
            return frozenset(str(table) for table in self._readiness.unchanged(looks))
        except CompactionError:
            # The look at each table says what is wrong.
            return frozenset()

    def _look_at(self, awaited: dict[str, frozenset[str]], is_over: Callable[[], bool], missed_by: str | None = None) -> int:
        count = 0
        for name, keys in awaited.items():
            if is_over():
                break
            try:
                count += self._look_at_one(TableIdentifier.parse(name), sorted(keys), missed_by)
            except CompactionError as error:
                self._warn(name, str(error))
            else:
                self._note_well(name)
        return count

    def _look_at_one(self, table: TableIdentifier, keys: Sequence[str], missed_by: str | None) -> int:
        self._settled.pop(table, None)
        now = self._clock()
        asked = {key: _question(key) for key in keys if WATERMARK not in named_in(key)}
        look = self._readiness.look(table, list(asked.values()), watermark=len(asked) < len(keys))
        for key, what in asked.items():
            # A need may mean nothing, by a typo or after a field was dropped. It keeps no other one waiting, and costs no load of its own.
            if what in look.refused:
                self._warn(key, look.refused[what])
            else:
                self._note_well(key)
        answered = [key for key, what in asked.items() if what not in look.refused]
        found = {key: THERE if answer.ready else NOTHING for key, answer in zip(answered, look.answers, strict=True)}
        reached = NOTHING if look.watermark is None else max(watermark_reached(look.watermark.at), NOTHING)
        found.update((key, reached) for key in keys if key not in asked)
        known = self._store.reached(keys)
        facts = [Fact(key, now, TABLES, reached) for key, reached in found.items() if reached != known.get(key)]
        if facts:
            self._store.post(facts, missed_by=missed_by)
        self._settled[table] = (look, frozenset(keys), now)
        return len(facts)

    def _warn(self, name: str, text: str) -> None:
        """Log what is wrong, and note it for `why`, and not again as long as nothing else is."""
        problems = self._known_problems()
        if problems.get(name) != text:
            problems[name] = text
            self._store.note_problem(name, text)
            _LOG.warning("table=%s the dependency center does not know how far it is: %s", name, text)

    def _note_well(self, name: str) -> None:
        if self._known_problems().pop(name, None) is not None:
            self._store.note_problem(name, None)

    def _forget_problems(self, awaited: dict[str, frozenset[str]]) -> None:
        """Forget what was wrong with what nobody waits for any more."""
        names = {"", *awaited, *(key for keys in awaited.values() for key in keys)}
        for name in [name for name in self._known_problems() if name not in names]:
            self._note_well(name)

    def _known_problems(self) -> dict[str, str]:
        if self._problems is None:
            # Another server may have led before.
            self._problems = dict(self._store.problems())
        return self._problems


def _question(key: str) -> str:
    """The question to a table that a key stands for: a window, or the name of a partition."""
    named = dict(named_in(key))
    del named[TABLE]
    return named[WINDOW] if WINDOW in named else "/".join(f"{name}={value}" for name, value in named.items())
