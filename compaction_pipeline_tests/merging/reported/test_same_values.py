"""Arrays are the same only if every value is, bit by bit, wherever it lies in memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from compaction_pipeline.merging.reported.same_values import same_values

_POINT = pa.struct([("x", pa.int32()), ("y", pa.float32())])
VALUES: Mapping[str, tuple[Any, list[Any]]] = {
    "int": (pa.int32(), [1, None, -(2**31), 2**31 - 1, 0]),
    "long": (pa.int64(), [1, None, -(2**63), 2**63 - 1, 0]),
    "float": (pa.float32(), [0.5, None, float("inf"), float("-inf"), -0.0]),
    "double": (pa.float64(), [0.5, None, float("nan"), 0.0, -0.0]),
    "decimal": (pa.decimal128(38, 2), [Decimal("1.25"), None, Decimal("-1.25"), Decimal("0"), Decimal("9" * 36)]),
    "text": (pa.string(), ["a", None, "", "é🙂", "a\0b"]),
    "bytes": (pa.binary(), [b"a", None, b"", b"\0", b"\xff"]),
    "fixed": (pa.binary(2), [b"ab", None, b"\0\0", b"\xff\xff", b"ba"]),
    "boolean": (pa.bool_(), [True, None, False, True, True]),
    "date": (pa.date32(), [dt.date(2026, 1, 1), None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1)]),
    "timestamp": (pa.timestamp("us", "UTC"), [0, None, 1, -1, 2**60]),
    "struct": (_POINT, [{"x": 1, "y": 0.5}, None, {"x": None, "y": 0.5}, {"x": 1, "y": None}, {"x": 2, "y": -0.0}]),
    "list": (pa.list_(pa.int64()), [[1, 2], None, [], [None], [3]]),
    "list of structs": (pa.list_(_POINT), [[{"x": 1, "y": 0.5}], None, [], [None], [{"x": 2, "y": 0.5}]]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", None)], [("a", 2), ("b", 3)]]),
    "map of lists": (pa.map_(pa.string(), pa.list_(pa.int64())), [[("a", [1])], None, [], [("b", None)], [("a", [2, None])]]),
}


@pytest.mark.parametrize("name", VALUES)
def test_equal_values_are_the_same_also_in_the_middle_of_other_arrays(name: str) -> None:
    kind, values = VALUES[name]
    one = pa.array(values, kind)
    longer = pa.array([values[3], *values, values[0]], kind).slice(1, len(values))
    assert same_values(one, longer)
    assert same_values(one.slice(2), longer.slice(2))
    assert same_values(one.slice(0, 0), longer.slice(5))


@pytest.mark.parametrize("name", VALUES)
def test_each_other_value_or_order_is_seen(name: str) -> None:
    kind, values = VALUES[name]
    one = pa.array(values, kind)
    for number in range(len(values)):
        for other in range(len(values)):
            if repr(values[number]) == repr(values[other]):
                continue
            changed = [*values]
            changed[number] = values[other]
            assert not same_values(one, pa.array(changed, kind)), (values[number], values[other])
    assert not same_values(one, one.slice(1))
    assert not same_values(one, pa.array([*values, values[0]], kind))


def test_what_lies_under_a_null_does_not_matter() -> None:
    bits = pa.py_buffer(b"\x05")
    one, other = (
        pa.Array.from_buffers(pa.int64(), 3, [bits, pa.array(values, pa.int64()).buffers()[1]]) for values in ([1, 7, 3], [1, 8, 3])
    )
    assert one.to_pylist() == other.to_pylist() == [1, None, 3]
    assert same_values(one, other)


def test_other_types_are_not_the_same() -> None:
    assert not same_values(pa.array([1], pa.int64()), pa.array([1], pa.int32()))
