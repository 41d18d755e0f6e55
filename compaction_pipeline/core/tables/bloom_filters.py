"""Finds the bloom filters that a table wants in its Parquet files (`write.parquet.bloom-filter-*`), with Iceberg's keys and defaults.

Columns are given by name and type in Iceberg's notation, for example the names `s.a` and `l.element`, and the types `long` and
`decimal(9, 2)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import floor, log1p
from typing import Any

from compaction_pipeline.core.errors import ConfigError

_PREFIX = "write.parquet.bloom-filter-"
_ENABLED, _FPP, _NDV = (f"{_PREFIX}{name}.column." for name in ("enabled", "fpp", "ndv"))
_MAX_BYTES = f"{_PREFIX}max-bytes"
_ADAPTIVE = f"{_PREFIX}adaptive-enabled"
_DEFAULT_FPP = "0.01"
_DEFAULT_MAX_BYTES = str(1 << 20)
_LEAST_BYTES, _MOST_BYTES = 32, 128 << 20
"""The least and the greatest size of a filter that the Parquet format and PyArrow allow."""

_BITS_PER_VALUE = 8
"""Each value sets this many bits in a split-block bloom filter."""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """The filter of one column chunk: it is made for at most `values` distinct values, and wrongly matches a share `fpp` of all others."""

    values: int
    fpp: float


def bloom_filters(properties: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, BloomFilter]:
    """Return the wanted filters by column name. `columns` maps names to types. Raises ConfigError for a property that breaks its rule."""
    chosen = [name for name, kind in columns.items() if _asked(properties, name) and kind != "boolean"]
    if not chosen:
        return {}
    most = _whole(properties, _MAX_BYTES, _DEFAULT_MAX_BYTES)
    found = {}
    for name in chosen:
        fpp = _share(properties, f"{_FPP}{name}")
        fitting = _values_that_fit(most, fpp)
        values = _whole(properties, f"{_NDV}{name}", str(fitting))
        found[name] = BloomFilter(min(values, fitting), fpp)
    return found


def not_honoured(properties: Mapping[str, str], schema: str) -> dict[str, str]:
    """Return the bloom filter properties that have no effect, each with the reason.

    `schema` is the table's current schema as JSON of the Iceberg spec.
    """
    columns = dict(_columns(json.loads(schema)["fields"], ""))
    reasons: dict[str, str] = {}
    for key in sorted(key for key in properties if key.startswith(_PREFIX)):
        if key == _ADAPTIVE:
            reasons[key] = "not honoured: each filter is made for as many values as its task has rows, within max-bytes"
        for prefix in (_ENABLED, _FPP, _NDV):
            name = key.removeprefix(prefix)
            if name != key and name not in columns:
                reasons[key] = "the table has no column of this name with a primitive type: a typing mistake?"
            elif name != key and columns[name] == "boolean" and _asked(properties, name):
                reasons[key] = "not honoured: a filter of booleans is not possible"
    try:
        bloom_filters(properties, columns)
    except ConfigError as error:
        reasons[_PREFIX + "*"] = f"the table cannot be merged: {error}"
    return reasons


def _columns(fields: list[dict[str, Any]], prefix: str) -> Iterator[tuple[str, str]]:
    for field in fields:
        yield from _leaves(field["type"], f"{prefix}{field['name']}")


def _leaves(kind: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(kind, str):
        yield name, kind
    elif kind["type"] == "struct":
        yield from _columns(kind["fields"], f"{name}.")
    elif kind["type"] == "list":
        yield from _leaves(kind["element"], f"{name}.element")
    elif kind["type"] == "map":
        yield from _leaves(kind["key"], f"{name}.key")
        yield from _leaves(kind["value"], f"{name}.value")


def _asked(properties: Mapping[str, str], column: str) -> bool:
    return properties.get(f"{_ENABLED}{column}", "").lower() == "true"


def _values_that_fit(most_bytes: int, fpp: float) -> int:
    """Return how many values a filter of at most `most_bytes` can hold with a share `fpp` of false positives.

    The size of a filter is a power of two.
    """
    room = min(max(most_bytes, _LEAST_BYTES), _MOST_BYTES)
    bits = 8 << (room.bit_length() - 1)
    return max(1, floor(bits * -log1p(-(fpp ** (1 / _BITS_PER_VALUE))) / _BITS_PER_VALUE))


def _whole(properties: Mapping[str, str], key: str, default: str) -> int:
    text = properties.get(key, default)
    if not text.isdecimal() or not text.isascii() or int(text) < 1:
        raise ConfigError(f"'{key}' is {text!r} but must be a whole number ≥ 1; correct the table property")
    return int(text)


def _share(properties: Mapping[str, str], key: str) -> float:
    text = properties.get(key, _DEFAULT_FPP)
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0.0 < share < 1.0:
        raise ConfigError(f"'{key}' is {text!r} but must be > 0 and < 1; correct the table property")
    return share
