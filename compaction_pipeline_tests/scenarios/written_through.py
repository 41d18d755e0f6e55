"""A table and its writer, whose catalog may be cut off in the middle of any commit. The writer finds out which of its commits landed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from sqlalchemy.exc import SQLAlchemyError

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.deletions import delete_quietly
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.reference_reader import live_entries, metadata_of

Row = Mapping[str, Any]

_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "part", IntegerType(), required=True),
    identifier_field_ids=[1, 3],
)
_SPEC = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
_ARROW = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), pa.field("part", pa.int32(), nullable=False)])
_KEY = (1, 3)
_MARK = "test.write"
_CUT_OFF = (SQLAlchemyError, StorageUnavailable)
_PAUSE_SECONDS = 0.2


class WrittenThrough:
    """A table of many partitions, its writer, and the truth: the rows that a reader must see, by their ids.

    One thread writes at a time. `gives_up` says whether a writer that cannot reach the catalog stops trying.
    """

    def __init__(self, lake: Lake, name: str, partitions: int, properties: Mapping[str, str], gives_up: Callable[[], bool]) -> None:
        made = lake.table(name, _SCHEMA, _SPEC, properties=properties)
        self.identifier = made.identifier
        self.truth: dict[int, Row] = {}
        self.commits = 0
        self.cut_off = 0
        self.overtaken = 0
        self._table = made.table
        self._partitions = partitions
        self._gives_up = gives_up
        self._next_id = 0
        self._places: dict[int, tuple[str, int]] = {}

    def reload(self) -> Any:
        """The table, as its catalog has it now."""
        return self._table.refresh()

    def fill(self, files: int) -> None:
        """Append `files` small files to every partition."""
        for _ in range(files):
            self._add([self._new_rows(part, 3) for part in range(self._partitions)])

    def write(self, rng: Random) -> None:
        """Do one commit of a random kind."""
        rng.choice((self._append, self._append, self._upsert, self._delete_by_key, self._delete_by_position))(rng)

    def _append(self, rng: Random) -> None:
        self._add([self._new_rows(part, rng.randint(1, 4)) for part in rng.sample(range(self._partitions), 10)])

    def _add(self, batches: Sequence[Sequence[Row]]) -> None:
        files = [self._data_file(rows) for rows in batches]
        self._commit(data=files)
        for file, rows in zip(files, batches, strict=True):
            self._now_in(file, rows)

    def _upsert(self, rng: Random) -> None:
        """Upsert as Flink does: delete the old rows by key, add the new ones, and delete by position what the same commit wrote twice."""
        for part, rows in self._some(rng, 6).items():
            new = [{**row, "name": f"v{rng.randrange(10**6)}"} for row in rows]
            file = self._data_file([*rows[:1], *new])
            twice = self._position_file(file.path, 0, part)
            self._commit(data=[file], positions=[twice], keys=[self._key_file(rows, part)])
            self._now_in(file, new, first=1)

    def _delete_by_key(self, rng: Random) -> None:
        chosen = self._some(rng, 8)
        self._commit(keys=[self._key_file(rows, part) for part, rows in chosen.items()])
        self._gone(row["id"] for rows in chosen.values() for row in rows)

    def _delete_by_position(self, rng: Random) -> None:
        """Delete a row by position as Spark does. The commit is given up when a compaction has replaced the row's file meanwhile."""
        chosen = rng.choice(sorted(self._places))
        path, position = self._places[chosen]
        delete = self._position_file(path, position, self.truth[chosen]["part"])
        if self._commit(positions=[delete], needs=(path,)):
            self._gone([chosen])
        else:
            self.overtaken += 1
            del self._places[chosen]

    # ---- rows and files ----------------------------------------------------------------------------------------------

    def _new_rows(self, part: int, count: int) -> list[Row]:
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        return [{"id": one, "name": f"n{one}", "part": part} for one in ids]

    def _some(self, rng: Random, count: int) -> dict[int, list[Row]]:
        """Some rows, by partition."""
        chosen: dict[int, list[Row]] = defaultdict(list)
        for one in rng.sample(sorted(self.truth), count):
            chosen[self.truth[one]["part"]].append(self.truth[one])
        return chosen

    def _now_in(self, file: OutputFile, rows: Sequence[Row], first: int = 0) -> None:
        for position, row in enumerate(rows, first):
            self.truth[row["id"]] = row
            self._places[row["id"]] = (file.path, position)

    def _gone(self, ids: Any) -> None:
        for one in ids:
            del self.truth[one]
            self._places.pop(one, None)

    def _data_file(self, rows: Sequence[Row]) -> OutputFile:
        return self._file(pa.Table.from_pylist([dict(row) for row in rows], schema=_ARROW), FileContent.DATA, rows[0]["part"])

    def _key_file(self, rows: Sequence[Row], part: int) -> OutputFile:
        keys = pa.Table.from_pylist([dict(row) for row in rows], schema=_ARROW).select(["id", "part"])
        return self._file(keys, FileContent.EQUALITY_DELETES, part, equality_ids=_KEY)

    def _position_file(self, path: str, position: int, part: int) -> OutputFile:
        rows = pa.table({"file_path": [path], "pos": [position]})
        return self._file(rows, FileContent.POSITION_DELETES, part, referenced_data_file=path)

    def _file(self, rows: pa.Table, content: FileContent, part: int, **more: Any) -> OutputFile:
        return write_parquet_file(self._table, rows, content=content, partition=Record(part), name=f"w{uuid4().hex}", **more)

    # ---- commits -----------------------------------------------------------------------------------------------------

    def _commit(
        self,
        data: Sequence[OutputFile] = (),
        positions: Sequence[OutputFile] = (),
        keys: Sequence[OutputFile] = (),
        needs: Collection[str] = (),
    ) -> bool:
        """Commit these files once, however often the catalog is cut off. False when a file of `needs` is no longer live."""
        operation = Operation.OVERWRITE if data and (positions or keys) else Operation.APPEND if data else Operation.DELETE
        mark, unsure = uuid4().hex, False
        while True:
            try:
                table = self._table.refresh()
                if unsure and self._has_landed(mark):
                    break
                if needs and not set(needs) <= {entry.path for entry in live_entries(metadata_of(table))}:
                    return False
                struct = partition_struct(table.metadata, 0)
                files = [data_file_of(file, struct) for file in (*data, *positions)]
                files += [data_file_of(file, struct, _KEY) for file in keys]
                transaction = Transaction(table)
                transaction.stage(SnapshotChange(operation, [AddedFile(file) for file in files], properties={_MARK: mark}))
                transaction.commit()
                break
            except CommitFailedException:
                delete_quietly(table, transaction.written)
            except _CUT_OFF:
                # Whether the commit landed shows when the catalog answers again.
                unsure = True
                self.cut_off += 1
                assert not self._gives_up(), "the catalog does not come back"
                time.sleep(_PAUSE_SECONDS)
        self.commits += 1
        return True

    def _has_landed(self, mark: str) -> bool:
        summaries = (snapshot.summary for snapshot in self._table.metadata.snapshots)
        return any(summary is not None and summary.additional_properties.get(_MARK) == mark for summary in summaries)
