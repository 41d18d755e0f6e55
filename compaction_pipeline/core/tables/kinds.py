"""What the properties of an Iceberg table say about its kind: a plain table, or one of the two stores of a keyed table.

A keyed (Mixed-Iceberg) table is two Iceberg tables: the base store, which has the keyed table's name, and the change store, which the base
store names. To a catalog they are two tables that have nothing to do with each other. Amoro also makes Mixed-Iceberg tables without a
primary key. Such a table is one Iceberg table, and it is compacted as a plain one once nothing points to a change store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compaction_pipeline.core.errors import TableRefused

FORMAT_KEY = "table-format"
STORE_KEY = "mixed-format.table-store"
PRIMARY_KEY = "mixed-format.primary-key-fields"
CHANGE_STORE_KEY = "mixed-format.change.identifier"
MIXED_ICEBERG = "MIXED_ICEBERG"
CHANGE_STORE_IO = "change-store."
"""FileIO properties whose keys begin so open the files of the change store. Without any, those of the base store open them too."""
_BASE, _CHANGE = "base", "change"


@dataclass(frozen=True, slots=True)
class BaseStore:
    """The base store of a keyed table: the columns of the primary key in their order, and the levels of the change store's name.

    The levels are a namespace and a name, without the catalog.
    """

    primary_key: tuple[str, ...]
    change_store: tuple[str, ...]


def is_store(properties: Mapping[str, str]) -> bool:
    """Whether an Iceberg table with these properties belongs to a Mixed-format table, so that it is no plain table."""
    return properties.get(FORMAT_KEY, "").upper().startswith("MIXED_") or STORE_KEY in properties


def is_change_store(properties: Mapping[str, str]) -> bool:
    """Whether an Iceberg table with these properties is the change store of a keyed table."""
    return properties.get(STORE_KEY, "").lower() == _CHANGE


def is_keyed(properties: Mapping[str, str]) -> bool:
    """Whether an Iceberg table with these properties is the base store of a keyed table, which is compacted together with its changes."""
    kind, store = properties.get(FORMAT_KEY, ""), properties.get(STORE_KEY, "")
    return kind.upper() == MIXED_ICEBERG and store.lower() == _BASE and bool(properties.get(PRIMARY_KEY, "").strip(", "))


def says_no_key(properties: Mapping[str, str]) -> bool:
    """Whether an Iceberg table with these properties says that it is a Mixed-Iceberg table without a primary key.

    It is a plain table only when its metadata holds no optimized sequence and no change store stands beside it.
    """
    kind, store = properties.get(FORMAT_KEY, ""), properties.get(STORE_KEY, "")
    is_base = kind.upper() == MIXED_ICEBERG and store.lower() == _BASE
    return is_base and PRIMARY_KEY not in properties and CHANGE_STORE_KEY not in properties


def change_stores_beside(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names of tables that may be of a change store of the table `name`, in the same namespace.

    Amoro names a change store `t_change_`. Its catalogs may set any other separator, and some catalogs do not distinguish capitals.
    """
    pattern = re.compile(rf"{re.escape(name)}(?P<separator>.+)change(?P=separator)", re.IGNORECASE | re.DOTALL)
    return tuple(sorted(other for other in names if pattern.fullmatch(other)))


def base_names(name: str) -> tuple[str, ...]:
    """The names that the base store of a change store with this name may have, the longest first: those of `t_change_` are `t`."""
    found = []
    for match in re.finditer("change", name, re.IGNORECASE):
        before, separator = name[: match.start()], name[match.end() :]
        if separator and before.endswith(separator) and len(before) > len(separator):
            found.append(before[: -len(separator)])
    return tuple(reversed(found))


def base_store(name: str, properties: Mapping[str, str]) -> BaseStore:
    """The base store that a table's properties describe. `name` is the table's name, for messages.

    Raises TableRefused when the table is a change store, a plain Iceberg table, or one without a primary key or a change store.
    """
    if is_change_store(properties):
        raise TableRefused(
            f"table {name} is the change store of a keyed table ('{STORE_KEY}' is 'change'): its files hold inserts and deletes, which "
            "only make sense together with the base store; name the base store instead"
        )
    kind, store = properties.get(FORMAT_KEY), properties.get(STORE_KEY)
    if (kind or "").upper() != MIXED_ICEBERG or (store or "").lower() != _BASE:
        raise TableRefused(
            f"table {name} is not a keyed table: its '{FORMAT_KEY}' is {kind!r} and its '{STORE_KEY}' is {store!r}, but a keyed table has "
            f"{MIXED_ICEBERG!r} and 'base'"
        )
    columns = tuple(column.strip() for column in properties.get(PRIMARY_KEY, "").split(",") if column.strip())
    if not columns:
        raise TableRefused(f"table {name} has no primary key: its property '{PRIMARY_KEY}' is missing, so it has no change store to read")
    levels = tuple(properties.get(CHANGE_STORE_KEY, "").split("."))
    if len(levels) < 2 or not all(levels):
        raise TableRefused(
            f"table {name} names no change store: '{CHANGE_STORE_KEY}' is {properties.get(CHANGE_STORE_KEY)!r} but must be namespace.name; "
            "without it the changes cannot be found"
        )
    return BaseStore(columns, levels)


def refusal_of_store(properties: Mapping[str, str]) -> str | None:
    """Why a store of a Mixed-format table is not compacted as a plain table. None for a table that is no store of one, or says that it has
    no primary key."""
    if not is_store(properties) or says_no_key(properties):
        return None
    if is_change_store(properties):
        return (
            f"'{STORE_KEY}' is 'change': the change store of a keyed (Mixed-Iceberg) table, which is compacted through its base store. Its "
            "delete files look like data to Iceberg, so deleted rows would come back if it were compacted as a plain table"
        )
    key = _telling(properties)
    return (
        f"'{key}' is {properties.get(key)!r}: a store of a keyed (Mixed-Iceberg) table, which would lose deletes if it were "
        "compacted as a plain table"
    )


def _telling(properties: Mapping[str, str]) -> str:
    """The property for which a store is no plain table."""
    if properties.get(FORMAT_KEY, "").upper() != MIXED_ICEBERG:
        return FORMAT_KEY if FORMAT_KEY in properties else STORE_KEY
    if properties.get(STORE_KEY, "").lower() != _BASE:
        return STORE_KEY if STORE_KEY in properties else FORMAT_KEY
    return PRIMARY_KEY if PRIMARY_KEY in properties else CHANGE_STORE_KEY
