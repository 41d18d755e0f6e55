"""Reads every row of a demo table and compares it with the change log.

This module applies deletes by itself. It is slow and simple, and shares no code with the kernel that merged the files. By the spec,
section "Scan Planning", a position delete reaches data files of its own sequence number and of lower ones. An equality delete reaches
only data files of lower sequence numbers, in the same partition, or in every partition when the delete is unpartitioned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from compaction_pipeline.demo import payments
from compaction_pipeline.demo.change_log import ChangeLog, row_text
from compaction_pipeline.demo.live_files import LiveEntry, LiveFiles
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.tables import DemoTable
from compaction_pipeline.demo.warehouse import open_table
from compaction_pipeline.demo.writers import files_of_batch

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A table compared with its change log. `missing` counts rows that a reader should see and does not, `unexpected` the opposite."""

    table: str
    rows: int
    missing: Counter[str]
    unexpected: Counter[str]

    @property
    def equal(self) -> bool:
        return not self.missing and not self.unexpected

    def __str__(self) -> str:
        if self.equal:
            return f"{self.table}: {self.rows:,} rows, every one as in the change log"
        examples = [f"    missing     {row}" for row in list(self.missing)[:3]] + [
            f"    unexpected  {row}" for row in list(self.unexpected)[:3]
        ]
        return "\n".join(
            [f"{self.table}: {self.rows:,} rows, {self.missing.total():,} missing, {self.unexpected.total():,} unexpected", *examples]
        )


def compare(options: DemoOptions, demo_table: DemoTable) -> Comparison:
    """Compare one table with its log. Its writer must stand still."""
    table = open_table(options, demo_table)
    with closing(ChangeLog(options.changes, demo_table.name)) as log:
        log.settle(lambda batch_id: files_of_batch(table, batch_id))
        expected = log.expected_rows()
    found = table_rows(table)
    return Comparison(demo_table.name, found.total(), expected - found, found - expected)


def compare_payments(options: DemoOptions) -> Comparison:
    """Compare the keyed table with its log. Its rows are read by the product, and only the log is independent of it."""
    with closing(ChangeLog(options.changes, payments.NAME)) as log:
        log.settle(payments.PaymentsStream(options).files_of_batch)
        expected = log.expected_rows()
    found = payments.payment_rows(options)
    return Comparison(payments.NAME, found.total(), expected - found, found - expected)


def table_rows(table: Table) -> Counter[str]:
    """Every row that a reader of the newest snapshot sees, in the form of `row_text`, with how often it is there."""
    entries = list(LiveFiles(table).entries())
    unpartitioned = {spec_id for spec_id, spec in table.specs().items() if not spec.fields}
    names = {field.field_id: field.name for field in table.schema().fields}
    positions = _positions(table, entries)
    deleted_at = _deleted_keys(table, entries, unpartitioned, names)
    rows: Counter[str] = Counter()
    for entry in entries:
        if entry.content is not DataFileContent.DATA:
            continue
        gone = {position for position, sequence in positions[entry.path] if entry.sequence_number <= sequence}
        deletes = [(columns, keys) for (node, columns), keys in deleted_at.items() if node is None or node == entry.node]
        for position, row in enumerate(_read(table, entry.path).to_pylist()):
            if position in gone:
                continue
            if any(keys.get(_key(row, columns), -1) > entry.sequence_number for columns, keys in deletes):
                continue
            rows[row_text(row)] += 1
    return rows


def _positions(table: Table, entries: list[LiveEntry]) -> dict[str, list[tuple[int, int]]]:
    """Deleted positions by data file. Each comes with the sequence number of its delete."""
    positions: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        if entry.content is DataFileContent.POSITION_DELETES:
            content = _read(table, entry.path)
            for path, position in zip(content["file_path"].to_pylist(), content["pos"].to_pylist(), strict=True):
                positions[path].append((position, entry.sequence_number))
    return positions


def _deleted_keys(
    table: Table, entries: list[LiveEntry], unpartitioned: set[int], names: dict[int, str]
) -> dict[tuple[tuple[int, str] | None, tuple[str, ...]], dict[Key, int]]:
    """The highest sequence number that deletes each key, by partition and columns. None stands for all partitions."""
    newest: dict[tuple[tuple[int, str] | None, tuple[str, ...]], dict[Key, int]] = defaultdict(dict)
    for entry in entries:
        if entry.content is DataFileContent.EQUALITY_DELETES:
            columns = tuple(names[field_id] for field_id in entry.equality_ids)
            keys = newest[None if entry.node[0] in unpartitioned else entry.node, columns]
            for row in _read(table, entry.path).to_pylist():
                key = _key(row, columns)
                keys[key] = max(keys.get(key, -1), entry.sequence_number)
    return newest


def _key(row: dict[str, Any], columns: tuple[str, ...]) -> Key:
    return tuple(row[column] for column in columns)


def _read(table: Table, path: str) -> pa.Table:
    with table.io.new_input(path).open() as stream:
        return pq.read_table(stream)
