"""`ready` and `watermark` as a shell script uses them: by their exit codes and by their JSON."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField

from compaction_pipeline_tests.cli.conftest import Desk

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", DateType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"))
TABLE, NEW_YEAR = "lake.shop.daily", "day=2026-01-01"


@pytest.fixture
def daily(desk: Desk) -> Table:
    """A table with a row on New Year, of which its writer promises that it is complete before 2 January, 01:00 UTC."""
    table = desk.lake.create_table("shop.daily", SCHEMA, partition_spec=SPEC)
    desk.add_catalog()
    rows = pa.table({"id": pa.array([1], pa.int64()), "day": pa.array([date(2026, 1, 1)], pa.date32())})
    table.append(rows, snapshot_properties={"watermark": "1767315600000"})
    return table


def test_exit_codes_tell_what_is_ready(desk: Desk, daily: Table) -> None:
    assert desk.type("ready", TABLE, NEW_YEAR).exit_code == 0
    late = desk.type("ready", TABLE, NEW_YEAR, "day=2026-01-02")
    assert late.exit_code == 6
    assert "day=2026-01-01: ready by watermark: the watermark is 2026-01-02T01:00Z" in late.stdout
    assert "day=2026-01-02: not ready by watermark" in late.stdout
    window = ("--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z")
    assert desk.json("ready", TABLE, *window)["ready"] is True
    assert desk.json("ready", TABLE, "--from", window[1], "--to", "2026-01-02T00:00:01Z", code=6)["ready"] is False


def test_the_watermark_and_whether_it_has_reached_a_time(desk: Desk, daily: Table) -> None:
    found = desk.json("watermark", TABLE)
    snapshot = daily.refresh().current_snapshot()
    assert snapshot is not None
    assert found["watermark"] == {"at": "2026-01-02T01:00:00+00:00", "key": "watermark", "snapshot_id": snapshot.snapshot_id}
    assert desk.type("watermark", TABLE, "--reached", "2026-01-02T01:00Z").exit_code == 0
    assert desk.json("watermark", TABLE, "--reached", "2026-01-02T02:00Z", code=6)["reached"] is False


def test_a_rule_of_the_namespace_counts_for_its_tables(desk: Desk, daily: Table) -> None:
    desk.lake.update_namespace_properties("shop", updates={"compaction.ready-when": "exists"})
    assert [one["ready"] for one in desk.json("ready", TABLE, NEW_YEAR, "day=2026-01-02", code=6)["answers"]] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name partitions, such as day=2026-01-01, in PARTITION, or give a window by --from and --to"),
        ((NEW_YEAR, "--from", "2026-01-01T00:00Z", "--to", "2026-01-02T00:00Z"), "one of the two, not both"),
        (("--from", "2026-01-01T00:00Z"), "--from and --to belong together"),
        (("--from", "2026-01-01", "--to", "2026-01-02"), "no time with a zone"),
        (("2026-01-01",), "is no partition: write it as in the paths of files, with day=…"),
        (("dt=2026-01-01",), "the table has no such partition field"),
    ],
)
def test_a_wrong_question_is_bad_input_in_words(desk: Desk, daily: Table, arguments: tuple[str, ...], words: str) -> None:
    result = desk.type("ready", TABLE, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
