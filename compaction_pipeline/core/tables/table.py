"""A table as its catalog and its metadata describe it. This module holds the values; `TableScan` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from compaction_pipeline.core.errors import ConfigError, MergeFailed

_CATALOG_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
CATALOG_NAME_RULE = "1 to 100 letters, digits, '_' and '-' only: it is the first level of catalog.namespace.table"


@dataclass(frozen=True, slots=True, order=True)
class TableIdentifier:
    """`catalog.namespace.table`: the registered name of the catalog, the levels of the namespace, and the table's name."""

    catalog: str
    namespace: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return ".".join(_quoted(level) for level in self.levels)

    @property
    def levels(self) -> tuple[str, ...]:
        """The catalog, the namespace levels and the table name, in this order."""
        return (self.catalog, *self.namespace, self.name)

    @classmethod
    def parse(cls, text: str) -> TableIdentifier:
        """Read `catalog.namespace.table`. A level that contains a dot must be in backticks.

        Raises ConfigError when there are fewer than three levels, a level is empty, or a backtick is not closed.
        """
        levels = _levels(text)
        if len(levels) >= 3 and not all(levels):
            empty = levels.index("") + 1
            raise ConfigError(f"level {empty} of table {text!r} is empty but it must be catalog.namespace.table, e.g. lake.shop.orders")
        if len(levels) < 3:
            raise ConfigError(f"table {text!r} has {len(levels)} level(s) but must be catalog.namespace.table, e.g. lake.shop.orders")
        return cls(levels[0], tuple(levels[1:-1]), levels[-1])


def is_catalog_name(name: str) -> bool:
    """Return whether a text keeps `CATALOG_NAME_RULE`."""
    return _CATALOG_NAME.fullmatch(name) is not None


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
        raise ConfigError(f"table {text!r} opens a backtick and never closes it: write a level that contains a dot like `a.b`")
    return [*levels, current]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """What a merge must know of a table's metadata.

    `schemas`, `specs` and `sort_orders` hold all that the metadata lists, by id, as JSON texts of the Iceberg spec (appendix C).
    `unpartitioned_spec_ids` are the specs without a field or with void transforms only. Their equality deletes are global: they apply in
    every partition, as in Iceberg's Java code.
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
    keyed: KeyedLayout | None = None
    """What a merge must know beside it when the table is the base store of a keyed table."""

    @property
    def kind(self) -> KeyedLayout | PlainLayout:
        """What answers where tables differ by their kind."""
        return PlainLayout() if self.keyed is None else self.keyed

    @property
    def stores(self) -> tuple[TableLayout, ...]:
        """The layouts of all Iceberg tables of the table. The change store of a keyed table is the last one."""
        return (self, *self.kind.beside)

    def has_columns_of(self, newer: TableLayout) -> bool:
        """Whether a merge that was planned with the newer layout of the same table can be done with this one."""
        return self.kind.primary_key == newer.kind.primary_key and all(
            own.schemas.items() >= new.schemas.items() and own.specs.items() >= new.specs.items()
            for own, new in zip(self.stores, newer.stores, strict=True)
        )

    def writing_to(self, folder: str) -> TableLayout:
        """The layout of the same table, with this folder for the new files of all its stores."""
        return replace(self, properties={**self.properties, "write.data.path": folder}, keyed=self.kind.writing_to(folder))


@dataclass(frozen=True, slots=True)
class PlainLayout:
    """Stands for the other half of a plain table, which has none."""

    @property
    def primary_key(self) -> tuple[int, ...]:
        """The field ids of the primary key: none."""
        return ()

    @property
    def beside(self) -> tuple[TableLayout, ...]:
        """The Iceberg tables that belong to the table beside the one of its name."""
        return ()

    @property
    def change_location(self) -> str | None:
        """Where the change store lies: nowhere."""
        return None

    @property
    def stores_in_words(self) -> tuple[str, ...]:
        """What a sentence about a snapshot says of its store, by store."""
        return ("",)

    def files_at(self, snapshot_id: int | None, metadata_location: str) -> object:
        """What is another value whenever the files of the table are others."""
        return snapshot_id

    def writing_to(self, folder: str) -> KeyedLayout | None:
        """The same with this folder for new files."""
        return None

    def of_task(self, what: str) -> KeyedLayout:
        """The layout for a task on a keyed table. `what` says what it does. Raises MergeFailed: no such task fits a plain table."""
        raise MergeFailed(f"{what}, but the layout of the change store is missing; plan the node again")


@dataclass(frozen=True, slots=True)
class KeyedLayout:
    """The other half of a keyed table: its change store, and the field ids of the primary key in the order in which keys are hashed.

    Its members are described in `PlainLayout`.
    """

    change: TableLayout
    primary_key: tuple[int, ...]

    @property
    def beside(self) -> tuple[TableLayout, ...]:
        return (self.change,)

    @property
    def change_location(self) -> str | None:
        return self.change.location

    @property
    def stores_in_words(self) -> tuple[str, ...]:
        return " of the base store", " of the change store"

    def files_at(self, snapshot_id: int | None, metadata_location: str) -> object:
        """Each commit to either store moves the metadata."""
        return metadata_location

    def writing_to(self, folder: str) -> KeyedLayout | None:
        return replace(self, change=self.change.writing_to(folder))

    def of_task(self, what: str) -> KeyedLayout:
        return self


def data_folder(location: str, properties: Mapping[str, str]) -> str:
    """Return the folder of a table's data files, without a slash at its end.

    `write.data.path` names it, or `write.folder-storage.path` in old tables; otherwise it is `data` below the table's location.
    """
    named = properties.get("write.data.path") or properties.get("write.folder-storage.path")
    return (named or f"{location.rstrip('/')}/data").rstrip("/")


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """One snapshot of a table: its parent, its operation and its summary."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    operation: str
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ChangeHead:
    """The newest snapshot of the change store of a keyed table, and its sequence number."""

    snapshot_id: int
    sequence_number: int


UNKNOWN_PLACE = ""
"""The place of metadata of which a part was not found. No table has it, so that the table is looked at again."""


def place_of_all(places: Iterable[str]) -> str:
    """One text that differs whenever one of the places of metadata does."""
    return " ".join(places)


@dataclass(frozen=True, slots=True)
class TableHead:
    """The current state of a table's main branch, without its files.

    `snapshot_id` is the newest snapshot of main; None while the table has no snapshot. `sequence_number` is that of this snapshot, which
    may be lower than the table's last one; it is 0 without a snapshot and in format v1. `ancestors` are at most the 100 newest snapshots
    of main, newest first. `refusal` says why the program does not compact the table; None when it does.

    Of a keyed table these are the values of its base store, but `metadata_location` names the metadata of both stores, so that it is
    another one whenever one of them changes. `change_store` is the head of the change store; None without a snapshot there. `stores` is the
    object with which the scan reads the files of both.
    """

    table: TableIdentifier
    table_uuid: str
    metadata_location: str
    snapshot_id: int | None
    sequence_number: int
    ancestors: tuple[SnapshotSummary, ...]
    layout: TableLayout
    refusal: str | None
    change_store: ChangeHead | None = None
    stores: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ManifestRef:
    """A manifest as a snapshot's manifest list names it. `handle` is the object with which the scan reads it."""

    path: str
    content: str
    spec_id: int
    added_snapshot_id: int
    sequence_number: int
    handle: Any = None


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A registered catalog. With `observe`, its tables are measured and planned but never compacted.

    `held` names the source of each key that a person does not hold (`core/catalogs/source.py`), "observe" among the keys of properties.
    `unreadable` says why its secrets cannot be decrypted. Then they are not among the properties, and nobody can open it.
    """

    name: str
    properties: Mapping[str, str]
    observe: bool = False
    held: Mapping[str, str] = field(default_factory=dict)
    unreadable: str | None = None
