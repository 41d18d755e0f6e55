"""Which bloom filters a table asks of its Parquet files (`write.parquet.bloom-filter-*`), with Iceberg's keys and defaults.

Pure: columns are given by name and type, as Iceberg writes both (`s.a`, `l.element`; `long`, `decimal(9, 2)`).
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
"""What the Parquet format and PyArrow allow a filter to be."""

_BITS_PER_VALUE = 8
"""Bits that each value sets in a split-block bloom filter."""


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter of one column chunk: made for `values` distinct values at most, wrong for a share `fpp` of the others."""

    values: int
    fpp: float


def bloom_filters(properties: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, BloomFilter]:
    """The filters by column, of these columns (name to type). Raises ConfigError that names key, value and rule of a bad property."""
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
    """Bloom filter properties that have no effect, and why; `schema` is the table's current one as JSON of the Iceberg spec."""
    columns = dict(_columns(json.loads(schema)["fields"], ""))
    reasons: dict[str, str] = {}
    for key in sorted(key for key in properties if key.startswith(_PREFIX)):
        if key == _ADAPTIVE:
            reasons[key] = "not honoured: a filter is made for as many values as the task has rows, within max-bytes"
        for prefix in (_ENABLED, _FPP, _NDV):
            name = key.removeprefix(prefix)
            if name != key and name not in columns:
                reasons[key] = "no such column of a primitive type: a typing mistake?"
            elif name != key and columns[name] == "boolean" and _asked(properties, name):
                reasons[key] = "not honoured: no filter can be made of booleans"
    try:
        bloom_filters(properties, columns)
    except ConfigError as error:
        reasons[_PREFIX + "*"] = f"no merge can be done: {error}"
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
    """How many values a filter of at most so many bytes can hold at this share of false positives; sizes are powers of two."""
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
