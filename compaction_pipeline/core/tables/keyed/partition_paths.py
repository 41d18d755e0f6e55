"""Partitions of a keyed table as texts, as Iceberg's `partitionToPath` writes them and Amoro reads them back.

Amoro keeps a number for each partition under such a text, for example `dt=2026-01-15/region=l%27%C3%A9t%C3%A9`. NULL and the text `null`
give the same text, so they have one key here (`looks_like_null`). Texts of several Iceberg versions differ in small things, so two texts
are compared by the values in them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import quote_plus, unquote_plus

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.calendar import date_text, days_of, micros_of_moment, micros_of_time
from compaction_pipeline.core.tables.node import Partition

PartitionKey = tuple[str | None, ...]
"""The values of a partition as canonical texts. Two partitions have one key exactly when their paths cannot be told apart."""

_NULLS = ("null", "__HIVE_DEFAULT_PARTITION__")
_EPOCH_YEAR = 1970
_HOUR = re.compile(r"(.+)-(\d{2})")


@dataclass(frozen=True, slots=True)
class PathField:
    """One field of a partition spec: its name, its transform, and the Iceberg type of its values."""

    name: str
    transform: str
    type: str


def path_fields(spec: str, partition_types: Sequence[str]) -> tuple[PathField, ...]:
    """The fields of a spec (JSON of the Iceberg spec, appendix C), whose values have these types."""
    fields = json.loads(spec)["fields"]
    return tuple(PathField(field["name"], field["transform"], kind) for field, kind in zip(fields, partition_types, strict=True))


def path_of(partition: Partition, fields: Sequence[PathField]) -> str:
    """The text of a partition. It is empty for a partition of a table that is not partitioned."""
    parts = zip(partition, fields, strict=True)
    return "/".join(f"{_escaped(field.name)}={_escaped(_human(value.value, field))}" for value, field in parts)


def key_of(partition: Partition, fields: Sequence[PathField]) -> PartitionKey:
    """What tells the partition from others, as far as its path does."""
    return key_of_path(path_of(partition, fields), fields)


def looks_like_null(partition: Partition, key: PartitionKey) -> bool:
    """Whether a partition has a text that readers of its path take for NULL. `key` is that of the partition.

    A number that stands under such a path is nobody's for Amoro, and its readers would read merged changes again.
    """
    return any(part is None and value.value is not None for part, value in zip(key, partition, strict=False))


def key_of_path(path: str, fields: Sequence[PathField]) -> PartitionKey:
    """The same for the text of a partition.

    Raises TableRefused for a text that is not a partition of these fields. The key of a table that is not partitioned is empty.
    """
    if all(field.transform == "void" for field in fields):
        # Iceberg calls such a spec unpartitioned, whatever its partitions are called.
        return ()
    parts = path.split("/")
    if len(parts) != len(fields):
        raise _unreadable(path, fields, f"it has {len(parts)} values, but the partition spec has {len(fields)} fields")
    key: list[str | None] = []
    for part, field in zip(parts, fields, strict=True):
        name, equals, text = part.partition("=")
        if not equals or field.name not in (name, unquote_plus(name)):
            raise _unreadable(path, fields, f"{part!r} is not a value of the field {field.name!r}")
        try:
            key.append(None if text == "null" else _canonical(unquote_plus(text), field))
        except (ValueError, ArithmeticError) as error:
            raise _unreadable(path, fields, str(error)) from error
    return tuple(key)


def names_fields(path: str, fields: Sequence[PathField]) -> bool:
    """Whether a text names exactly these fields, as a partition of their spec does. That of a table without partitions is empty."""
    if path == "":
        return all(field.transform == "void" for field in fields)
    names = [part.partition("=")[0] for part in path.split("/")]
    return len(names) == len(fields) and all(field.name in (name, unquote_plus(name)) for name, field in zip(names, fields, strict=True))


def _unreadable(path: str, fields: Sequence[PathField], why: str) -> TableRefused:
    spec = ", ".join(f"{field.name}: {field.transform} of type {field.type}" for field in fields)
    return TableRefused(
        f"a keyed table keeps a number for the partition {path!r}, which is not a partition of its spec ({spec}): {why}; "
        "without the number it is unknown which changes are already in the base store"
    )


def _escaped(text: str) -> str:
    # Java's URLEncoder leaves the asterisk as it is, and encodes the tilde. Python's function does the opposite.
    return quote_plus(text, safe="*").replace("~", "%7E")


def _human(value: str | int | float | bool | None, field: PathField) -> str:
    if value is None or field.transform == "void":
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if field.transform == "month":
            return f"{_EPOCH_YEAR + value // 12:04d}-{value % 12 + 1:02d}"
        if field.transform == "year":
            return f"{_EPOCH_YEAR + value:04d}"
        if field.transform == "hour":
            return f"{date_text(value // 24)}-{value % 24:02d}"
    text = str(value)
    if field.type.startswith(("binary", "fixed")):
        return base64.b64encode(bytes.fromhex(text)).decode()
    # Java writes the time zone of UTC as a letter.
    return text.removesuffix("+00:00") + "Z" if field.type == "timestamptz" else text


def _canonical(text: str, field: PathField) -> str | None:
    """The canonical form of a value's text: equal texts are equal values."""
    if text in _NULLS:
        return None
    if field.transform == "month":
        year, month = _dashed(text)
        return str((year - _EPOCH_YEAR) * 12 + month - 1)
    if field.transform == "year":
        return str(int(text) - _EPOCH_YEAR)
    if field.transform == "hour":
        found = _HOUR.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not an hour: it looks like 2026-01-15-09")
        return str(days_of(found[1]) * 24 + int(found[2]))
    return _CANONICAL.get(re.split(r"[\[(]", field.type)[0], str)(text)


def _dashed(text: str) -> tuple[int, int]:
    year, dash, month = text.rpartition("-")
    if not dash:
        raise ValueError(f"{text!r} is not a month: it looks like 2026-01")
    return int(year), int(month)


_CANONICAL: Mapping[str, Callable[[str], str]] = {
    "int": lambda text: str(int(text)),
    "long": lambda text: str(int(text)),
    "boolean": lambda text: str(text.lower() == "true"),
    "float": lambda text: repr(float(text)),
    "double": lambda text: repr(float(text)),
    "date": lambda text: str(days_of(text)),
    "time": lambda text: str(micros_of_time(text)),
    "timestamp": lambda text: str(micros_of_moment(text, utc=False)),
    "timestamptz": lambda text: str(micros_of_moment(text, utc=True)),
    "decimal": lambda text: format(Decimal(text), "f"),
    "uuid": str.lower,
}
"""How the text of a value becomes canonical, by the name of its type. Other types are compared as they are written."""
