"""How many files of a sorted table a look-up on the sort columns may open, as refreshes note it."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
    UUIDType,
)

from compaction_pipeline.core.tables.ports.files import SortBounds
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House


def sort_by(table: LakeTable, *columns: str) -> None:
    with table.table.refresh().update_sort_order() as update:
        for column in columns:
            update.asc(column, IdentityTransform())


def depth(house: House, table: LakeTable) -> int | None:
    house.services.refresh_files.refresh(table.identifier)
    overview = house.services.read_tables.table(table.identifier).overview
    sentence = "" if overview.overlap_depth is None else f"each sort column may open {overview.overlap_depth} data file"
    assert sentence in str(overview.read_costs)
    return overview.overlap_depth


def test_each_append_that_overlaps_makes_the_look_up_open_one_file_more_and_a_sorted_rewrite_makes_it_one_again(house: House) -> None:
    table = house.lake.table("t")
    sort_by(table, "id")
    for first in range(0, 30, 10):
        table.insert(*({"id": first + number, "name": "n"} for number in range(10)))
    assert depth(house, table) == 1
    table.ids(3, 15)
    assert depth(house, table) == 2
    table.ids(15, 29)
    assert depth(house, table) == 3
    table.commit(table.merge())
    assert depth(house, table) == 1


def test_a_table_without_a_sort_order_has_no_depth_and_its_bounds_are_not_read(house: House) -> None:
    table = house.fragmented(files=3)
    assert depth(house, table) is None
    assert bounds_of(house, table.identifier) == [None] * 3


def test_a_table_that_gets_another_sort_order_has_a_depth_when_all_its_files_were_read_with_it(house: House) -> None:
    table = house.fragmented(files=2)
    assert depth(house, table) is None
    sort_by(table, "id", "name")
    assert depth(house, table) is None
    table.commit(table.merge())
    assert depth(house, table) == 1
    sort_by(table, "name")
    assert depth(house, table) == 1
    table.table.refresh().update_sort_order().commit()
    assert depth(house, table) is None


def bounds_of(house: House, table: TableIdentifier) -> list[SortBounds]:
    """The stored bounds of all data files of a table."""
    stores = house.services.stores
    found = stores.files.sort_bounds(table, [state.node for state in stores.tables.nodes(table)])
    return [bounds for of_node in found.values() for bounds in of_node]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (IntegerType(), [-2, -1, 3]),
        (LongType(), [-(2**40), 0, 2**62]),
        (DoubleType(), [-1.5, 0.0, 1e300]),
        (DecimalType(9, 2), [Decimal("-1.10"), Decimal("2.09"), Decimal("10.00")]),
        (DateType(), [date(1969, 12, 31), date(1970, 1, 1), date(2026, 1, 1)]),
        (TimestamptzType(), [datetime(year, 1, 1, tzinfo=timezone.utc) for year in (1960, 1999, 2026)]),
        (StringType(), ["a", "é", "\N{BANK}"]),
        (BinaryType(), [b"\x00", b"\x7f", b"\xff"]),
        (UUIDType(), [UUID(int=number) for number in (1, 2**64, 2**127)]),
    ],
)
def test_values_of_every_type_keep_their_order(house: House, kind: PrimitiveType, values: list[object]) -> None:
    schema = Schema(NestedField(1, "v", kind))
    made = house.lake.catalog.create_table("db.typed", schema, sort_order=SortOrder(SortField(1, transform=IdentityTransform())))
    # Each file has two neighbours, so two files hold the middle value and no value is held by more.
    for pair in ([values[0], values[1]], [values[1], values[2]]):
        made.append(pa.table({"v": pair}, schema=schema.as_arrow()))
    house.services.explore_catalogs.explore()
    identifier = next(iter(house.services.read_tables.names()))
    house.services.refresh_files.refresh(identifier)
    assert house.services.read_tables.table(identifier).overview.overlap_depth == 2
    read = [(bounds or {})[1] for bounds in bounds_of(house, identifier)]
    assert all(bounds is not None and bounds[0] < bounds[1] for bounds in read), read
