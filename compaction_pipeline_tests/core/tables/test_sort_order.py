from __future__ import annotations

import json

import pytest

from compaction_pipeline.core.tables.sort_order import UNSORTED, lacks_order, order_of_full
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline_tests.builders import data

_INNER = {"type": "struct", "fields": [{"id": 4, "name": "x", "type": "long", "required": False}]}
_LIST = {"type": "list", "element-id": 6, "element": "long", "element-required": False}
_SCHEMA = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 3, "name": "inner", "type": _INNER, "required": False},
        {"id": 5, "name": "list", "type": _LIST, "required": False},
    ],
}


def layout(*fields: tuple[int, str], default: int = 3) -> TableLayout:
    order = {
        "order-id": 3,
        "fields": [
            {"source-id": column, "transform": transform, "direction": "asc", "null-order": "nulls-first"} for column, transform in fields
        ],
    }
    orders = {0: json.dumps({"order-id": 0, "fields": []}), 3: json.dumps(order)}
    return TableLayout("file:///t", 2, 0, {0: json.dumps(_SCHEMA)}, 0, {}, default, orders, frozenset(), {})


@pytest.mark.parametrize("fields", [[(1, "identity")], [(4, "bucket[4]"), (1, "identity")], [(1, "truncate[10]")]])
def test_a_full_sorts_by_the_table_s_default_order(fields: list[tuple[int, str]]) -> None:
    assert order_of_full(layout(*fields)) == 3


@pytest.mark.parametrize(
    "fields", [[], [(2, "identity")], [(1, "identity"), (2, "identity")], [(3, "identity")], [(6, "identity")], [(1, "zorder")]]
)
def test_an_order_that_rows_cannot_be_sorted_by_is_none(fields: list[tuple[int, str]]) -> None:
    assert order_of_full(layout(*fields)) == UNSORTED


def test_a_table_without_a_default_order_is_unsorted() -> None:
    assert order_of_full(layout((1, "identity"), default=0)) == UNSORTED
    assert order_of_full(layout((1, "identity"), default=9)) == UNSORTED


def test_a_file_lacks_the_order_when_its_id_is_another_one_or_none() -> None:
    file = data("a")
    assert lacks_order(file, 3)
    assert not lacks_order(file, UNSORTED)
