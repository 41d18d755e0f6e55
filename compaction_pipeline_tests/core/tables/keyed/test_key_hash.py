"""The hash of a primary key. The vectors come from a JDK; Amoro's writers compute the same."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.keyed.key_hash import key_hash, may_be_in_a_key
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode

_INT_MIN = -(2**31)

# (types, values, the hash, the id of the node among 4 buckets)
VECTORS: list[tuple[list[str], list[Any], int, int]] = [
    (["int"], [1], 32, 4),
    (["int"], [-5], 26, 6),
    (["int"], [_INT_MIN - 31 + 2**32], 2147483647, 7),
    (["long"], [8589934597], 38, 6),
    (["long"], [-1], 31, 7),
    (["string"], ["abc"], 96385, 5),
    (["string"], ["中文😀"], 622957564, 4),
    (["decimal(4, 2)"], [Decimal("12.34")], 38287, 7),
    (["decimal(4, 2)"], [Decimal("-12.34")], 38221, 5),
    (["decimal(22, 1)"], [Decimal("123456789012345678901.5")], 494185906, 6),
    (["date"], [18993], 19024, 4),
    (["timestamp"], [1641038400000000], 115393699, 7),
    (["timestamptz"], [1641038400000000], 115393699, 7),
    (["boolean"], [True], 1262, 6),
    (["double"], [1.5], 1073217567, 7),
    (["float"], [1.5], 1069547551, 7),
    (["binary"], [bytes.fromhex("0102ff")], 28924, 4),
    (["fixed[3]"], [bytes.fromhex("0102ff")], 28924, 4),
    (["long"], [None], 31, 7),
    (["int", "string"], [7, "x"], 1298, 6),
    (["long", "string", "string"], [7, None, "x"], 36638, 6),
]


@pytest.mark.parametrize(("types", "values", "expected", "node_id"), VECTORS, ids=lambda value: str(value)[:40])
def test_a_key_has_the_hash_and_the_node_that_java_computes(types: list[str], values: list[Any], expected: int, node_id: int) -> None:
    assert key_hash(values, types) == expected
    assert DataTreeNode.of_hash(3, expected).id == node_id


def test_java_hashes_the_two_zeros_apart_and_every_nan_alike() -> None:
    other_nan = struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0]
    assert key_hash([-0.0], ["double"]) == abs(31 + _INT_MIN) != key_hash([0.0], ["double"])
    assert key_hash([-0.0], ["float"]) == abs(31 + _INT_MIN) != key_hash([0.0], ["float"])
    # 31 + 0x7ff80000 and 31 + 0x7fc00000
    assert key_hash([float("nan")], ["double"]) == key_hash([other_nan], ["double"]) == 2146959391
    assert key_hash([float("nan")], ["float"]) == 2143289375


def test_a_uuid_folds_its_two_halves() -> None:
    # The halves 1 and 2 give 1 ^ 2; the halves 1 << 32 and 2 give the same by folding.
    assert key_hash([UUID(int=(1 << 64) | 2).bytes], ["uuid"]) == 31 + 3
    assert key_hash([UUID(int=(1 << 96) | 2).bytes], ["uuid"]) == 31 + 3


def test_a_time_is_hashed_as_a_long() -> None:
    assert key_hash([86_399_999_999], ["time"]) == key_hash([86_399_999_999], ["long"])


def test_a_decimal_has_the_scale_of_its_type() -> None:
    assert key_hash([Decimal("12.3")], ["decimal(4, 2)"]) == key_hash([Decimal("12.30")], ["decimal(4, 2)"])
    with pytest.raises(ValueError, match="more digits after the point"):
        key_hash([Decimal("12.345")], ["decimal(4, 2)"])


def test_the_order_of_the_columns_matters() -> None:
    assert key_hash([1, 2], ["int", "int"]) != key_hash([2, 1], ["int", "int"])


@pytest.mark.parametrize("kind", ["struct<1: a: optional int>", "list<int>", "map<int, int>", "variant", "unknown"])
def test_a_type_without_a_hash_cannot_be_in_a_key(kind: str) -> None:
    assert not may_be_in_a_key(kind)
    with pytest.raises(ValueError, match="cannot be in a primary key"):
        key_hash([1], [kind])


@pytest.mark.parametrize("kind", ["int", "decimal(38, 10)", "fixed[16]", "uuid", "timestamptz"])
def test_the_types_of_keys_are_known(kind: str) -> None:
    assert may_be_in_a_key(kind)


@given(st.integers(-(2**31), 2**31 - 1))
def test_an_int_follows_javas_rule(value: int) -> None:
    plain = 31 + value
    wrapped = (plain + 2**31) % 2**32 - 2**31
    assert key_hash([value], ["int"]) == min(abs(wrapped), 2**31 - 1)


@given(st.text())
def test_a_text_follows_javas_rule(value: str) -> None:
    units = [int.from_bytes(pair, "big") for pair in _pairs(value.encode("utf-16-be", "surrogatepass"))]
    total = sum(unit * 31**place for place, unit in enumerate(reversed(units)))
    wrapped = (31 + total + 2**31) % 2**32 - 2**31
    assert key_hash([value], ["string"]) == min(abs(wrapped), 2**31 - 1)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=5, min_value=-(10**25), max_value=10**25))
def test_a_decimal_follows_javas_rule(value: Decimal) -> None:
    unscaled = int(str(value).replace(".", ""))
    words, rest = [], abs(unscaled)
    while rest:
        rest, low = divmod(rest, 2**32)
        words.append(low)
    big = sum(word * 31**place for place, word in enumerate(words)) * (-1 if unscaled < 0 else 1)
    wrapped = (31 + 31 * big + 5 + 2**31) % 2**32 - 2**31
    assert key_hash([value], ["decimal(30, 5)"]) == min(abs(wrapped), 2**31 - 1)


def _pairs(data: bytes) -> list[bytes]:
    return [data[start : start + 2] for start in range(0, len(data), 2)]
