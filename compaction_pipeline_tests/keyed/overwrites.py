"""Keyed tables that are overwritten while others write to both stores, for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from compaction_pipeline_tests.interop.amoro_reader import optimized_sequences
from compaction_pipeline_tests.keyed.acting_catalog import ActingCatalog, Commit
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.written import SCHEMA, Keyed
from compaction_pipeline_tests.keyed.written import table_of as changes_of
from compaction_pipeline_tests.reference_reader import Row, live_entries, metadata_of


class Overwritten(Keyed):
    """A keyed table that is overwritten and compacted."""

    def __init__(self, folder: Path, key: Sequence[str] = ("id",), spec: PartitionSpec = PartitionSpec(), **options: Any) -> None:
        super().__init__(folder, key, spec, **options)
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
        self.compactions = Compactions(self.catalog, properties)

    def overwrite(self, *rows: Row, **options: Any) -> int | None:
        return self.table.insert_overwrite(table_of(rows), **options)

    def insert(self, *rows: Row, **options: Any) -> int | None:
        return self.write(*(("INSERT", each) for each in rows), **options)

    def sequences(self) -> dict[tuple[Any, ...], int]:
        """The optimized sequences as Amoro's rules read them."""
        found = optimized_sequences(metadata_of(self.stores()[0].metadata_location))
        return {tuple(value for _, value in partition): number for partition, number in found.items()}

    def base_paths(self) -> list[str]:
        return sorted(entry.path for entry in live_entries(metadata_of(self.stores()[0])))

    def stored(self) -> int:
        """How many data files the base store has on storage."""
        return len(list(Path(self.stores()[0].location().removeprefix("file://")).glob("data/**/*.parquet")))


def table_of(rows: Sequence[Row], columns: Schema = SCHEMA) -> pa.Table:
    return changes_of((("", row) for row in rows), columns).drop_columns(["_change_type"])


def between(catalog: ActingCatalog, *acts: Callable[[], Any], before: Callable[[], Any] | None = None) -> None:
    """Let others act after the rows of an overwrite are written and before its commit: the first of them in the first overwrite.

    An overwrite begins by a commit to the change store. It loads the table again when its rows are written. `before` acts just before the
    first overwrite begins.
    """
    first, left = [before] if before is not None else [], list(acts)

    def act(name: str, commit: Commit) -> None:
        if name == "t_change_" and first:
            catalog.act = None
            first.pop()()
            catalog.act = act
        commit()
        if name == "t_change_" and left:
            catalog.before_load = written

    def written() -> None:
        catalog.before_load = None
        left.pop(0)()

    catalog.act = act
