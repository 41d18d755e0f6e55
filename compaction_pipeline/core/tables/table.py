"""A table as the catalog and its metadata describe it. Values only; reading them is the scan's work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compaction_pipeline.core.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """`catalog.namespace.table`: the first level is our name of the catalog, the last the table's."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join(_quoted(level) for level in self.levels)

    @property
    def levels(self) -> tuple[str, ...]:
        """Catalog, namespace levels and table name, in this order."""
        return (self.catalog, *self.namespace, self.name)

    @classmethod
    def parse(cls, text: str) -> TableIdentifier:
        """Read `catalog.namespace.table`; a level that holds a dot stands in backticks.

        Raises ConfigError when there are fewer than three levels or an empty one.
        """
        levels = _levels(text)
        if len(levels) < 3 or not all(levels):
            raise ConfigError(f"table {text!r} has {len(levels)} level(s) but must be catalog.namespace.table, e.g. lake.shop.orders")
        return cls(levels[0], tuple(levels[1:-1]), levels[-1])


def _quoted(level: str) -> str:
    return "`" + level.replace("`", "``") + "`" if "." in level or "`" in level else level


def _levels(text: str) -> list[str]:
    levels, current, quoted, position = [], "", False, 0
    while position < len(text):
        character = text[position]
        if character == "`":
            if quoted and text[position + 1 : position + 2] == "`":
                current, position = current + "`", position + 1
            else:
                quoted = not quoted
        elif character == "." and not quoted:
            levels.append(current)
            current = ""
        else:
            current += character
        position += 1
    if quoted:
        raise ConfigError(f"table {text!r} opens a backtick that is never closed")
    return [*levels, current]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a merge must know of a table's metadata, as JSON texts of the Iceberg spec (appendix C).

    `schemas`, `specs` and `sort_orders` hold every one the metadata knows, by id. `unpartitioned_spec_ids` are
    specs without a field or with void transforms only: their equality deletes are global, as in Iceberg's Java code.
    """

    location: str
    format_version: int
    schema_id: int
    schemas: Mapping[int, str]
    default_spec_id: int
    specs: Mapping[int, str]
    default_sort_order_id: int
    sort_orders: Mapping[int, str]
    unpartitioned_spec_ids: frozenset[int]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """One snapshot of a table: who it descends from and what it says of itself."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableHead:
    """The current state of a table's main branch, without its files.

    `snapshot_id` is None for a table that holds no snapshot yet; `sequence_number` is that of this snapshot (never the
    table's last one), 0 without a snapshot and on v1. `ancestors` are the newest ≤ 100 snapshots of main, newest first.
    `refusal` is the reason why we do not compact the table, None when we do.
    """

    table: TableIdentifier
    table_uuid: str
    metadata_location: str
    snapshot_id: int | None
    sequence_number: int
    ancestors: tuple[SnapshotSummary, ...]
    layout: TableLayout
    refusal: str | None


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest as a snapshot's manifest list names it; `handle` is the scan's own object for reading it."""

    path: str
    content: str
    spec_id: int
    added_snapshot_id: int
    sequence_number: int
    handle: Any = None


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A registered catalog. `observe`: measured and planned, never executed."""

    name: str
    properties: Mapping[str, str]
    observe: bool = False
