"""Finds the sort order that a FULL gives to files, and decides whether a file already has it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.table import TableLayout

UNSORTED = 0
"""The id of the order without fields (Iceberg spec: "Order id 0 is reserved for the unsorted order")."""

_KNOWN = re.compile(r"identity|void|year|month|day|hour|bucket\[\d+\]|truncate\[\d+\]")


def order_of_full(layout: TableLayout) -> int:
    """Return the id of the table's default sort order; UNSORTED when it has none, or one by which this program cannot sort.

    It cannot sort by an order that names a dropped column or an unknown transform. A merge then leaves the rows in the sequence of
    the inputs, and its outputs do not get the sort order's id. If a plan asked for such a sort order, every later plan would ask again.
    """
    text = layout.sort_orders.get(layout.default_sort_order_id)
    schema = layout.schemas.get(layout.schema_id)
    if layout.default_sort_order_id == UNSORTED or text is None or schema is None:
        return UNSORTED
    fields = json.loads(text)["fields"]
    columns = frozenset(_sortable_columns(json.loads(schema)["fields"]))
    applies = all(field.get("source-id") in columns and _KNOWN.fullmatch(field["transform"]) for field in fields)
    return layout.default_sort_order_id if fields and applies else UNSORTED


def sort_columns(layout: TableLayout) -> tuple[int, ...]:
    """Return the field ids of the columns of the order that a FULL gives to files, each once; none when it gives no order."""
    text = layout.sort_orders.get(order_of_full(layout))
    return tuple(dict.fromkeys(field["source-id"] for field in json.loads(text)["fields"])) if text is not None else ()


def lacks_order(file: LiveFile, order_id: int) -> bool:
    """Return whether a file should be sorted by this order. A file without an order id was not sorted by its writer."""
    return order_id != UNSORTED and file.sort_order_id != order_id


def _sortable_columns(fields: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Yield the ids of primitive fields that lie in no list and no map. Only these have exactly one value per row."""
    for field in fields:
        kind = field["type"]
        if isinstance(kind, str):
            yield field["id"]
        elif kind["type"] == "struct":
            yield from _sortable_columns(kind["fields"])
