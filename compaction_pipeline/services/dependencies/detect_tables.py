"""Finds out for the dependency center how far the tables are that its instances wait for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import groupby

from compaction_pipeline.core.dependencies.center.inbox import NOTHING, Fact
from compaction_pipeline.core.dependencies.center.ports import CenterStore
from compaction_pipeline.core.dependencies.center.subjects import TABLE, THERE, WATERMARK, WINDOW, named_in, watermark_reached
from compaction_pipeline.core.dependencies.ready_time import Window, instant_of
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness

_LOG = logging.getLogger(__name__)
MOST_LOOKED_AT = 100_000


class DetectTables:
    """The verb is look."""

    def __init__(self, store: CenterStore, readiness: ReadReadiness, clock: Clock) -> None:
        self._store = store
        self._readiness = readiness
        self._clock = clock

    def look(self, is_over: Callable[[], bool] = lambda: False) -> int:
        """Look at each table that is waited for, and post what has changed. Return how many facts that were.

        A table that cannot be read is logged, and others go on: what was known of it stays.
        """
        keys = sorted(self._store.awaited(TABLE, MOST_LOOKED_AT), key=lambda key: named_in(key)[TABLE])
        count = 0
        for table, some in groupby(keys, key=lambda key: named_in(key)[TABLE]):
            if is_over():
                break
            try:
                count += self._look_at(table, list(some))
            except CompactionError as error:
                _LOG.warning("table=%s the dependency center does not know how far it is: %s", table, error)
        return count

    def _look_at(self, name: str, keys: Sequence[str]) -> int:
        table = TableIdentifier.parse(name)
        known = self._store.reached(keys)
        found = self._found(table, keys)
        facts = [Fact(key, self._clock(), "tables", reached) for key, reached in found.items() if reached != known.get(key)]
        if facts:
            self._store.post(facts)
        return len(facts)

    def _found(self, table: TableIdentifier, keys: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        windows = {key: _window(named_in(key)[WINDOW]) for key in keys if WINDOW in named_in(key)}
        partitions = {key: _partition(key) for key in keys if key not in windows and WATERMARK not in named_in(key)}
        for key in (key for key in keys if WATERMARK in named_in(key)):
            mark = self._readiness.watermark(table).watermark
            found[key] = NOTHING if mark is None else max(watermark_reached(mark.at), NOTHING)
        if windows:
            answers = self._readiness.windows(table, list(windows.values()))
            found.update((key, THERE if answer.ready else NOTHING) for key, answer in zip(windows, answers, strict=True))
        if partitions:
            answers = self._readiness.partitions(table, list(partitions.values()))
            found.update((key, THERE if answer.ready else NOTHING) for key, answer in zip(partitions, answers, strict=True))
        return found


def _window(text: str) -> Window:
    start, _, end = text.partition("/")
    return Window(instant_of(start), instant_of(end))


def _partition(key: str) -> str:
    return "/".join(f"{name}={value}" for name, value in named_in(key).items() if name != TABLE)
