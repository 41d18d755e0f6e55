"""Which sort order a FULL gives to files, and whether a file has it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.table import TableLayout

UNSORTED = 0
"""The id of the order without fields (spec: "Order id 0 is reserved for the unsorted order")."""

_KNOWN = re.compile(r"identity|void|year|month|day|hour|bucket\[\d+\]|truncate\[\d+\]")


def order_of_full(layout: TableLayout) -> int:
    """The id of the table's default sort order; UNSORTED where it has none, or one that rows cannot be sorted by.

    Such an order names a column that is gone, or a transform that we do not know: a merge then leaves rows as they are, and its
    outputs do not carry the order, so a plan must not ask for it again and again.
    """
    text = layout.sort_orders.get(layout.default_sort_order_id)
    schema = layout.schemas.get(layout.schema_id)
    if layout.default_sort_order_id == UNSORTED or text is None or schema is None:
        return UNSORTED
    fields = json.loads(text)["fields"]
    columns = frozenset(_sortable_columns(json.loads(schema)["fields"]))
    applies = all(field.get("source-id") in columns and _KNOWN.fullmatch(field["transform"]) for field in fields)
    return layout.default_sort_order_id if fields and applies else UNSORTED


def lacks_order(file: LiveFile, order_id: int) -> bool:
    """Whether a table of this order would like the file sorted. A file without an order id was not sorted by its writer."""
    return order_id != UNSORTED and file.sort_order_id != order_id


def _sortable_columns(fields: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    """Ids of primitive fields that are reached through structs only: others have no one value per row."""
    for field in fields:
        kind = field["type"]
        if isinstance(kind, str):
            yield field["id"]
        elif kind["type"] == "struct":
            yield from _sortable_columns(kind["fields"])
