"""A keyed table that programs write, and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BooleanType, DateType, DoubleType, ListType, LongType, NestedField, StringType

from compaction_pipeline.iceberg.commit.attempts import RetryPolicy
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.acting_catalog import ActingCatalog
from compaction_pipeline_tests.reference_reader import Row, bag_difference

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "v", StringType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "score", DoubleType()),
    NestedField(6, "ok", BooleanType()),
    NestedField(7, "tags", ListType(8, StringType())),
)


BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


class Keyed:
    """A new keyed table in a catalog of its own."""

    def __init__(self, folder: Path, key: Sequence[str] = ("id",), spec: PartitionSpec = PartitionSpec(), **options: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.catalog = ActingCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/wh")
        self.catalog.create_namespace("db")
        self.table = KeyedTable.create(self.catalog, "db.t", SCHEMA, key, spec, **options)

    def write(self, *changes: tuple[str, Row], **options: Any) -> int | None:
        return self.table.write_changes(table_of(changes), **options)

    def stores(self) -> tuple[Table, Table]:
        base, change = (self.catalog.load_table(f"db.{name}") for name in ("t", "t_change_"))
        return base, change

    def check(self, expected: Iterable[Row]) -> None:
        """Our reader and that of Amoro's rules find exactly these rows. Amoro's does not know change files that were merged."""
        base, change = self.stores()
        expected = [whole(each) for each in expected]
        if "compaction.delta-rewrite.enabled" not in base.properties:
            found = amoro_rows(base.metadata_location, change.metadata_location)
            assert bag_difference(found, expected) == "", "the reader of Amoro's rules"
        assert bag_difference(self.table.scan().to_arrow().to_pylist(), expected) == "", "the product"


def whole(row: Row) -> Row:
    return {field.name: row.get(field.name) for field in SCHEMA.fields}


def table_of(changes: Iterable[tuple[str, Row]], columns: Schema = SCHEMA) -> pa.Table:
    rows = [{**row, "_change_type": kind} for kind, row in changes]
    fields = [pa.field(each.name, each.type) for each in schema_to_pyarrow(columns, include_field_ids=False)]
    schema = pa.schema([*fields, ("_change_type", pa.string()), ("seq", pa.int64())])
    names = [name for name in schema.names if name != "seq" or any("seq" in row for row in rows)]
    return pa.Table.from_pylist(rows, schema=schema).select(names)


def row(number: int, v: str | None = None, region: str | None = None) -> Row:
    return {"id": number, "region": region, "v": v}


def list_files(keyed: Keyed) -> list[Path]:
    _, change = keyed.stores()
    return list(Path(change.location().removeprefix("file://")).glob("data/**/*.parquet"))


def give_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let writers try again once only. As often as they do it else, a test would wait for seconds."""
    monkeypatch.setattr(RetryPolicy, "WRITER", replace(RetryPolicy.WRITER, retries=1))
