"""Compares Arrow arrays value by value: exactly, and in their order.

A digest would not do. Its sums are made to show mistakes, and somebody who knows them can write other rows with the same digest.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def same_values(one: pa.Array, other: pa.Array) -> bool:
    """Whether two arrays hold the same values in the same order. NaNs are compared by their bits, and so are 0.0 and −0.0."""
    if len(one) != len(other) or one.type != other.type or one.null_count != other.null_count:
        return False
    if one.null_count and not one.is_null().equals(other.is_null()):
        return False
    kind = one.type
    if isinstance(kind, pa.BaseExtensionType):
        return same_values(one.storage, other.storage)
    if pa.types.is_struct(kind):
        return all(same_values(*fields) for fields in zip(one.flatten(), other.flatten(), strict=True))
    if pa.types.is_map(kind):
        return _same_maps(one.drop_null(), other.drop_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = pc.list_value_length(one).equals(pc.list_value_length(other))
        return bool(lengths) and same_values(one.flatten(), other.flatten())
    if pa.types.is_floating(kind):
        bits = pa.int64() if pa.types.is_float64(kind) else pa.int32()
        return bool(one.view(bits).equals(other.view(bits)))
    return bool(one.equals(other))


def _same_maps(one: pa.Array, other: pa.Array) -> bool:
    if not np.array_equal(*(np.diff(each.offsets.to_numpy()) for each in (one, other))):
        return False
    return all(same_values(*parts) for parts in zip(_entries(one), _entries(other), strict=True))


def _entries(maps: pa.MapArray) -> Iterator[pa.Array]:
    """The keys and the values of maps without NULL, as two arrays."""
    low, high = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    yield maps.keys.slice(low, high - low)
    yield maps.items.slice(low, high - low)
