"""A log of every change to a table, in order. The one writer of the table writes it, and the table is compared with it.

The writer logs a batch before it commits the batch to the table, and marks it afterwards. A writer that is killed in between leaves the
batch open. The table then says whether the batch is in it, because the snapshot of a batch carries the batch's id. So the log and the
table can be compared whenever the writer stands still.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import date, datetime, timezone
from pathlib import Path

from compaction_pipeline.demo.tables import Change

BATCH_PROPERTY = "demo.batch-id"
"""The key in the summary of a snapshot that has the id of its batch."""

_SCHEMA = """
create table if not exists batch (
    number integer primary key, batch_id text not null unique, committed integer, files integer not null default 0
);
create table if not exists change (
    batch integer not null, position integer not null, key text not null, row text, primary key (batch, position)
);
"""


def row_text(row: dict[str, object]) -> str:
    """One row as a text. Two rows have the same text only when they are equal. A row that was read back from Parquet keeps its text."""
    return json.dumps({name: _text(value) for name, value in sorted(row.items())})


def _text(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="microseconds")
    return (
        value
        if value is None or isinstance(value, (bool, int, float, str))
        else value.isoformat()
        if isinstance(value, date)
        else str(value)
    )


class ChangeLog:
    """The log of one table. It has one writer and any number of readers."""

    def __init__(self, folder: Path, table: str) -> None:
        """`table` is the name of the table."""
        # Spark calls the writer of a stream in threads of its own, one after another.
        self._connection = sqlite3.connect(folder / f"{table}.db", timeout=30, isolation_level=None, check_same_thread=False)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.executescript(_SCHEMA)

    def begin(self, batch_id: str, changes: Sequence[Change]) -> None:
        """Log a batch that is about to be committed to the table."""
        self._connection.execute("begin immediate")
        number = self._connection.execute("insert into batch (batch_id) values (?)", (batch_id,)).lastrowid
        self._connection.executemany(
            "insert into change values (?, ?, ?, ?)",
            [
                (number, position, json.dumps(change.key), None if change.row is None else row_text(change.row))
                for position, change in enumerate(changes)
            ],
        )
        self._connection.execute("commit")

    def done(self, batch_id: str, files: int) -> None:
        """Mark a batch as committed to the table, with this number of files."""
        self._connection.execute("update batch set committed = 1, files = ? where batch_id = ?", (files, batch_id))

    def settle(self, in_table: Callable[[str], int | None]) -> None:
        """Settle the batches that a killed writer left open.

        `in_table` answers how many files of a batch the table has, or None when the batch is not in the table.
        """
        for (batch_id,) in self._connection.execute("select batch_id from batch where committed is null").fetchall():
            files = in_table(batch_id)
            if files is None:
                self._connection.execute("update batch set committed = 0 where batch_id = ?", (batch_id,))
            else:
                self.done(batch_id, files)

    def files_written(self) -> int:
        """How many files the table would have without compaction."""
        (files,) = self._connection.execute("select coalesce(sum(files), 0) from batch where committed = 1").fetchone()
        return int(files)

    def batches(self) -> int:
        (batches,) = self._connection.execute("select count(*) from batch where committed = 1").fetchone()
        return int(batches)

    def changes(self) -> int:
        """How many changes were ever begun. No change has used a higher number."""
        (changes,) = self._connection.execute("select count(*) from change").fetchone()
        return int(changes)

    def expected_rows(self) -> Counter[str]:
        """The rows that a reader of the table must see, as `row_text`s."""
        newest: dict[str, str | None] = {}
        for key, row in self._connection.execute(
            "select key, row from change join batch on batch.number = change.batch where committed = 1 order by batch, position"
        ):
            newest[key] = row
        return Counter(row for row in newest.values() if row is not None)

    def close(self) -> None:
        self._connection.close()


def files_written(folder: Path, table: str) -> int:
    """The same as `ChangeLog.files_written`, for a log that is not open here."""
    with closing(ChangeLog(folder, table)) as log:
        return log.files_written()
