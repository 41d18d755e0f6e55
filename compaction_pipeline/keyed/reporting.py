"""Reports the commits of a writer beside its batches, so that the service looks at the table at once.

A report is only a hint. So it never fails a batch, and no batch waits for it longer than `PATIENCE_SECONDS`.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from compaction_pipeline.core.tables.keyed.partition_paths import path_of
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.keyed.sequences import fields_by_spec
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.keyed.append import Appended

PATIENCE_SECONDS = 0.9
"""A batch waits so long for its report. With the start of a thread it stays below a second."""

log = logging.getLogger(__name__)


class Reporter(Protocol):
    """What reports a commit: `compaction_pipeline.reports.CommitReporter`, or anything else with this method."""

    def report_commit(self, table: str, snapshot_id: int, sequence_number: int = 0, added: Mapping[str, int] | None = None) -> object:
        """Report a commit. `table` is the change store as `catalog.namespace.name`, and `added` counts the new files of each partition."""


@dataclass
class _Commit:
    table: str
    snapshot_id: int
    sequence_number: int
    added: Counter[str] = field(default_factory=Counter)


class Reports:
    """The reports of one writer. One at a time is under way; what is committed meanwhile is reported together after it."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._patience_seconds = patience_seconds
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Reporter, _Commit]] = {}
        self._is_running = False

    def __reduce__(self) -> Any:
        # Spark Connect sends a writer to its server. What waits to be reported stays here.
        return Reports, ()

    def report(self, reporter: Reporter, stores: KeyedStores, appended: Appended) -> None:
        """Report the commit of a batch. It raises nothing. The first report that is slow is waited for, and later ones are not."""
        commit = _commit(stores, appended)
        with self._lock:
            earlier = self._waiting.get(id(reporter))
            if earlier is not None:
                commit.added += earlier[1].added
            self._waiting[id(reporter)] = (reporter, commit)
            if self._is_running:
                return
            self._is_running = True
        thread = threading.Thread(target=self._deliver, name=f"reports of {stores.name}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            with self._lock:
                self._is_running = False
            log.warning("commit %s of table %s not reported: %s", commit.snapshot_id, commit.table, error)
            return
        thread.join(self._patience_seconds)

    def _deliver(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_running = False
                    return
                reporter, commit = self._waiting.pop(next(iter(self._waiting)))
            try:
                reporter.report_commit(commit.table, commit.snapshot_id, commit.sequence_number, dict(commit.added))
            except BaseException as error:
                # Whatever went wrong: a hint must not end the work of the writer that gives it.
                log.warning("commit %s of table %s not reported: %s", commit.snapshot_id, commit.table, error)


def _commit(stores: KeyedStores, appended: Appended) -> _Commit:
    fields = fields_by_spec(stores.change.metadata)
    added = Counter(path_of(file.partition, fields[file.spec_id]) for file in appended.files)
    levels = stores.change.name()
    table = TableIdentifier(stores.change.catalog.name, levels[:-1], levels[-1])
    return _Commit(str(table), appended.snapshot_id, appended.transaction_id, added)
