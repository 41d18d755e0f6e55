"""Reads keyed tables as Spark DataFrames: the same rows as in this process, in Spark's own types."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.spark.session import SparkSessions, SparkSettings
from compaction_pipeline_tests.keyed.change_logs import ChangeLog
from compaction_pipeline_tests.keyed.written import BY_REGION, Keyed, row

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    extra = {"spark.sql.session.timeZone": "Asia/Tokyo"}
    sessions = SparkSessions(SparkSettings(master="local[2]", home=str(tmp_path_factory.mktemp("spark-home")), extra=extra))
    yield sessions.session()
    sessions.stop()


def test_a_data_frame_has_the_rows_that_are_live(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path, key=("id", "region"), spec=BY_REGION)
    keyed.write(*(("INSERT", row(number, f"v{number}", region)) for number in range(50) for region in ("eu", None)))
    keyed.write(*(("DELETE", row(number, None, "eu")) for number in range(20)))
    frame = keyed.table.scan().to_spark(spark)
    assert frame.count() == 80
    chosen = keyed.table.scan("region = 'eu' and id < 25", ["v", "id"]).to_spark(spark)
    assert chosen.columns == ["v", "id"]
    assert sorted(tuple(each) for each in chosen.collect()) == sorted((f"v{number}", number) for number in range(20, 25))
    assert keyed.table.scan("region = 'mars'").to_spark(spark).collect() == []


def test_an_empty_table_gives_an_empty_data_frame(spark: Any, tmp_path: Path) -> None:
    keyed = Keyed(tmp_path)
    frame = keyed.table.scan(selected_fields=["id", "v"]).to_spark(spark)
    assert (frame.columns, frame.collect()) == (["id", "v"], [])


def test_values_of_every_type_arrive_as_spark_has_them(spark: Any, tmp_path: Path) -> None:
    key = UUID("0191f5c4-0000-7000-8000-000000000001")
    moment = datetime(2026, 3, 29, 1, 59, 59, 999_999)
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "u", UUIDType()), NestedField(3, "f", FixedType(3)),
        NestedField(4, "b", BinaryType()), NestedField(5, "d", DateType()), NestedField(6, "ntz", TimestampType()),
        NestedField(7, "tz", TimestamptzType()), NestedField(8, "big", DecimalType(38, 2)), NestedField(9, "x", DoubleType()),
        NestedField(10, "tags", ListType(11, FixedType(2), False)), NestedField(12, "s", StructType(NestedField(13, "a", StringType()))),
        NestedField(14, "m", MapType(15, StringType(), 16, LongType(), False)),
    )  # fmt: skip
    log = ChangeLog(tmp_path, schema)
    value = {
        "id": 2**63 - 1, "u": key.bytes, "f": b"\x00\xff\x01", "b": b"", "d": date(1582, 10, 4), "ntz": moment,
        "tz": moment.replace(tzinfo=timezone.utc), "big": Decimal("-999999999999999999999999999999999999.99"), "x": -0.0,
        "tags": [b"ab", None], "s": {"a": "中文😀"}, "m": [("k", None)],
    }  # fmt: skip
    empty = {**dict.fromkeys(value), "id": 1}
    log.commit(log.changes(1, "I", 0, [(value, 1), (empty, 2)]))
    first, second = sorted(KeyedTable.open(log.catalog, "db.t").scan().to_spark(spark).collect(), key=lambda each: each["id"])
    assert first.asDict() == empty
    found = second.asDict(recursive=True)
    found["tags"] = [None if each is None else bytes(each) for each in found["tags"]]
    local = found.pop("tz")
    assert local.astimezone(timezone.utc) == value.pop("tz")
    expected = {**value, "u": str(key), "m": {"k": None}}
    assert {name: bytes(each) if isinstance(each, bytearray) else each for name, each in found.items()} == expected


def test_a_type_that_spark_lacks_is_refused_and_the_other_columns_are_read(spark: Any, tmp_path: Path) -> None:
    number = NestedField(1, "id", LongType(), required=True)
    log = ChangeLog(tmp_path / "times", Schema(number, NestedField(2, "at", TimeType())))
    log.commit(log.changes(1, "I", 0, [({"id": 1, "at": time(12)}, 1)]))
    with pytest.raises(ConfigError, match="column 'at' has a time, which Spark cannot read: name the other columns"):
        KeyedTable.open(log.catalog, "db.t").scan().to_spark(spark)
    frame = KeyedTable.open(log.catalog, "db.t").scan("at is not null", ["id"]).to_spark(spark)
    assert [tuple(each) for each in frame.collect()] == [(1,)]
    nested = ChangeLog(tmp_path / "nested", Schema(number, NestedField(3, "us", ListType(4, UUIDType()))))
    with pytest.raises(ConfigError, match="column 'us' has a uuid inside, which Spark cannot read"):
        KeyedTable.open(nested.catalog, "db.t").scan().to_spark(spark)
