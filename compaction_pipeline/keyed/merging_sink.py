"""A sink of a keyed table that merges its own small files in the background."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.core.tables.keyed.changes import Batch
from compaction_pipeline.core.tables.keyed.small_files import SmallFiles, held_until
from compaction_pipeline.core.tables.properties import resolve_properties
from compaction_pipeline.core.tables.property_rules import DELTA_REWRITE_KEY
from compaction_pipeline.foundations import utc_now
from compaction_pipeline.iceberg.keyed.stores import KeyedStores
from compaction_pipeline.keyed.append import Appended, append_rows
from compaction_pipeline.keyed.reporting import Reporter, Reports
from compaction_pipeline.keyed.sink_merges import Nodes, SinkFigures, SinkMerges
from compaction_pipeline.merging.process import MergeProcess

DEFAULT_MEMORY = 512 * 1024 * 1024
_LEAST_MEMORY = 64 * 1024 * 1024
_LEAST_INTERVAL = timedelta(seconds=1)
_MOST_BATCHES = 1_000
"""So many committed batches may wait for the background. The files of a batch beyond them stay for the service."""
_MOST_HELD_BYTES = 64 * 1024 * 1024
"""The sink keeps the bytes of at most so many small files, and hands them to the process that merges. Others are read from storage."""
_HELD = 1.5
"""Plans leave the files of a batch alone for so many intervals. Then the sink has merged them, or it has ended."""
_PATIENCE = 0.1
"""The commit of merged files waits for the end of a batch, at most this part of an interval. After a batch most streams pause."""


class MergingSink:
    """Writes changes and merges its own small files. `KeyedTable.merging_sink` makes one; use it in a `with` block."""

    def __init__(
        self, load: Callable[[], KeyedStores], sink_id: str, interval: timedelta, memory_bytes: int, reporter: Reporter | None = None
    ) -> None:
        if not isinstance(interval, timedelta) or interval < _LEAST_INTERVAL:
            raise ConfigError(f"interval is {interval!r} but must be a timedelta of at least one second: each merge is a commit")
        if memory_bytes < _LEAST_MEMORY:
            raise ConfigError(f"memory_bytes is {memory_bytes} but must be at least {_LEAST_MEMORY} (64 MiB)")
        stores = load()
        properties = resolve_properties(stores.base.properties, {})
        if not properties.delta_rewrite:
            raise ConfigError(
                f"table {stores.name} was not created with delta_rewrite=True ('{DELTA_REWRITE_KEY}' is not true): its change files must "
                "not be merged with each other, because Amoro's readers go by their names; use write_changes"
            )
        self._load, self._sink_id, self._interval = load, sink_id, interval
        self._reporter, self._reports = reporter, Reports()
        self._small = SmallFiles(interval, properties.fragment_size_bytes, properties.target_size_bytes)
        self._process = MergeProcess()
        self._merges = SinkMerges(load, properties, memory_bytes, self._process.merge, self._await_end_of_batch)
        self._committed: queue.Queue[tuple[Sequence[LiveFile], datetime] | None] = queue.Queue(_MOST_BATCHES)
        # A merge of `memory_bytes` has room for this beside what it works on.
        self._room_bytes = min(memory_bytes // 16, _MOST_HELD_BYTES)
        self._held: dict[str, bytes] = {}
        self._holding = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"merging sink {sink_id}", daemon=True)
        self._batch_ended = threading.Condition()
        self._patience_seconds = _PATIENCE * interval.total_seconds()
        self._is_closing = False
        self._merges_rest = True

    def __enter__(self) -> MergingSink:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # A sink that failed ends at once. The service merges what it leaves.
        self._merges_rest = kind is None
        self._committed.put(None)
        with self._batch_ended:
            self._is_closing = True
            self._batch_ended.notify_all()
        self._thread.join()
        self._process.close()

    def __reduce__(self) -> Any:
        raise ConfigError(
            "a merging sink lives in the driver of a stream and cannot be sent elsewhere: Spark Connect runs foreachBatch in the server; "
            "use KeyedTable.write_changes there"
        )

    @property
    def figures(self) -> SinkFigures:
        """What the sink has done in the background so far."""
        return self._merges.figures

    def write_changes(self, rows: Any, *, batch: int, order_by: str | None = None, watermark: datetime | None = None) -> int | None:
        """Append changes as one transaction. All of `KeyedTable.write_changes` holds, with the id of this sink.

        Raises ConfigError outside the `with` block too.
        """
        if not self._thread.is_alive():
            raise ConfigError("the merging sink is not open: use it as `with table.merging_sink(...) as sink:`")
        marked = Batch(self._sink_id, batch, watermark)
        stores = self._load()
        appended = append_rows(stores, rows, order_by, marked, held_until(utc_now() + _HELD * self._interval), self._room())
        with self._batch_ended:
            self._batch_ended.notify_all()
        if appended is None:
            return None
        with self._holding:
            self._held.update(appended.contents)
        try:
            self._committed.put_nowait(([_live(file, appended) for file in appended.files], utc_now()))
        except queue.Full:
            # A batch never waits for the background.
            self.figures.left_files += len(appended.files)
            self.figures.problem = f"{_MOST_BATCHES} batches wait to be merged"
        if self._reporter is not None:
            self._reports.report(self._reporter, stores, appended)
        return appended.transaction_id

    def _run(self) -> None:
        is_open = True
        while is_open:
            at = self._small.due_at()
            is_open = self._take(None if at is None else max(0.0, (at - utc_now()).total_seconds()))
            if is_open or self._merges_rest:
                nodes = self._small.due(utc_now(), ends=not is_open)
                if nodes:
                    self._merges.merge(nodes, self._contents(nodes))
            if not len(self._small) and self._committed.empty():
                # What is held now is of files that nobody will merge, such as large ones. If not, they are read from storage.
                with self._holding:
                    self._held.clear()

    def _room(self) -> int:
        """How many more bytes may be held. The files of batches that wait for the background are among those that are held."""
        with self._holding:
            return self._room_bytes - sum(map(len, self._held.values()))

    def _contents(self, nodes: Nodes) -> Mapping[str, bytes]:
        """Give away what is held of the files of these nodes."""
        with self._holding:
            return {file.path: self._held.pop(file.path) for _, files in nodes for file in files if file.path in self._held}

    def _await_end_of_batch(self) -> None:
        """A batch and the commit of a merge share one interpreter, so each would take longer beside the other."""
        with self._batch_ended:
            if not self._is_closing:
                self._batch_ended.wait(self._patience_seconds)

    def _take(self, timeout: float | None) -> bool:
        """Take the batches that were committed, and wait for one at most this long. Returns False at the end of the sink."""
        try:
            # While a merge ran, several batches may have come. They are merged together.
            taken = self._committed.get(timeout=timeout)
            while taken is not None:
                self._small.add(*taken)
                taken = self._committed.get_nowait()
        except queue.Empty:
            return True
        return False


def _live(file: OutputFile, appended: Appended) -> LiveFile:
    """A file of the batch as the change store lists it."""
    return LiveFile(file.path, file.content, file.spec_id, file.partition, file.file_size_bytes, file.record_count, appended.transaction_id)
