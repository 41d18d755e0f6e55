"""Commits batches of changes the way Flink's Iceberg sink does.

Each subtask writes one data file for each partition, with every row of the batch. An upserted key gets an equality delete, which reaches
only older snapshots. A key that changes twice within the batch gets a position delete of its earlier row, in the same snapshot.
"""

from __future__ import annotations

import random
import uuid
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.demo.change_log import BATCH_PROPERTY, ChangeLog
from compaction_pipeline.demo.event_time import WATERMARK_KEY, EventTime, watermark_at, watermark_ms
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.tables import Change, DemoTable, Row
from compaction_pipeline.demo.warehouse import open_table
from compaction_pipeline.demo.write_files import write_parquet_file

_KEPT_HISTORY = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one batch, or of a share of it. They are not yet committed."""

    data: tuple[OutputFile, ...] = ()
    position_deletes: tuple[OutputFile, ...] = ()
    equality_deletes: tuple[OutputFile, ...] = ()

    def __add__(self, other: WrittenFiles) -> WrittenFiles:
        return WrittenFiles(
            self.data + other.data, self.position_deletes + other.position_deletes, self.equality_deletes + other.equality_deletes
        )

    def __len__(self) -> int:
        return len(self.data) + len(self.position_deletes) + len(self.equality_deletes)


class Writer:
    """The one writer of a table."""

    def __init__(self, options: DemoOptions, demo_table: DemoTable, seed: int | None = None) -> None:
        self._demo_table = demo_table
        self._table = open_table(options, demo_table)
        self._log = ChangeLog(options.changes, demo_table.name)
        self._random = random.Random(seed)
        self._event_time = EventTime(options.first_day, newest_watermark(self._table)) if demo_table.says_watermarks else None
        self._log.settle(lambda batch_id: files_of_batch(self._table, batch_id))

    @property
    def files_written(self) -> int:
        return self._log.files_written()

    def commit_batch(self, now: datetime | None = None, *, live: bool = False) -> int:
        """Make up a batch, log it and commit it. Answer how many files it has.

        Only `live` does the time of events run. Otherwise a commit adds to the days of the commit before.
        """
        at, said = now or datetime.now(timezone.utc), {}
        if self._event_time is not None:
            at = now or self._event_time.next(at, runs=live)
            said = {WATERMARK_KEY: watermark_ms(at)}
        changes = self._demo_table.make_changes(self._random, at, self._log.changes() + 1, self._demo_table.changes_per_commit)
        batch_id = uuid.uuid4().hex
        files = write_batch(self._table, self._demo_table, changes, batch_id)
        self._log.begin(batch_id, changes)
        key_ids = [self._demo_table.key_field_id] if self._demo_table.key else []
        row_delta(
            self._table,
            files.data,
            files.position_deletes,
            [(file, key_ids) for file in files.equality_deletes],
            {BATCH_PROPERTY: batch_id, **said},
        )
        self._log.done(batch_id, len(files))
        return len(files)

    def expire_snapshots(self, now: datetime | None = None) -> None:
        """Expire snapshots that are older than half an hour. When another commit comes first, the next expiry tries again."""
        self._table.refresh()
        before = (now or datetime.now(timezone.utc)) - _KEPT_HISTORY
        try:
            self._table.maintenance.expire_snapshots().older_than(before).commit()
        except CommitFailedException:
            return

    def close(self) -> None:
        self._log.close()


def newest_watermark(table: Table) -> datetime | None:
    """What the newest snapshot with a watermark says; None when none has one."""
    newest_first = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0, reverse=True)
    summaries = (snapshot.summary.additional_properties for snapshot in newest_first if snapshot.summary is not None)
    return watermark_at(next((summary[WATERMARK_KEY] for summary in summaries if WATERMARK_KEY in summary), None))


def files_of_batch(table: Table, batch_id: str) -> int | None:
    """How many files the snapshot of this batch added, or None when the table has no such snapshot."""
    table.refresh()
    for snapshot in table.snapshots():
        summary = snapshot.summary
        if summary is not None and summary.additional_properties.get(BATCH_PROPERTY) == batch_id:
            properties = summary.additional_properties
            return int(properties.get("added-data-files", 0)) + int(properties.get("added-delete-files", 0))
    return None


def write_batch(table: Table, demo_table: DemoTable, changes: Sequence[Change], batch_id: str) -> WrittenFiles:
    """Write the files of a batch. All changes of one key go to one subtask, in order."""
    shares: dict[tuple[int, Record], list[Change]] = defaultdict(list)
    for change in changes:
        subtask = zlib.crc32(str(change.key).encode()) % demo_table.subtasks
        shares[subtask, demo_table.partition_of(change)].append(change)
    written = WrittenFiles()
    for number, ((subtask, partition), share) in enumerate(shares.items()):
        written += _write_share(table, demo_table, share, partition, f"{batch_id}-{subtask:02d}-{number:03d}")
    return written


def _write_share(table: Table, demo_table: DemoTable, changes: Sequence[Change], partition: Record, name: str) -> WrittenFiles:
    """Write the changes of one subtask to one partition: at most one file of each kind."""
    written = WrittenFiles()
    rows: list[Row] = []
    at: dict[int | str, int] = {}
    replaced: list[int] = []
    for change in changes:
        if demo_table.key is not None and change.key in at:
            replaced.append(at.pop(change.key))
        if change.row is not None:
            at[change.key] = len(rows)
            rows.append(change.row)
    if rows:
        content = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(demo_table.schema, include_field_ids=False))
        data = write_parquet_file(table, content, content=FileContent.DATA, partition=partition, name=name)
        written += WrittenFiles(data=(data,))
        if replaced:
            deleted = pa.table({"file_path": [data.path] * len(replaced), "pos": replaced})
            positions = write_parquet_file(
                table,
                deleted,
                content=FileContent.POSITION_DELETES,
                partition=partition,
                referenced_data_file=data.path,
                name=f"{name}-pos",
            )
            written += WrittenFiles(position_deletes=(positions,))
    if demo_table.key is not None:
        column = demo_table.schema.find_field(demo_table.key)
        kind = schema_to_pyarrow(column.field_type)
        keys = pa.table({demo_table.key: pa.array(list(dict.fromkeys(change.key for change in changes)), kind)})
        equalities = write_parquet_file(
            table,
            keys,
            content=FileContent.EQUALITY_DELETES,
            partition=partition,
            equality_ids=[column.field_id],
            name=f"{name}-eq",
        )
        written += WrittenFiles(equality_deletes=(equalities,))
    return written
