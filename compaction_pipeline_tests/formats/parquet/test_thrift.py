"""Thrift from somebody else is read within bounds."""

from __future__ import annotations

import pytest

from compaction_pipeline.formats.parquet.thrift import (
    BINARY,
    I64,
    LIST,
    STRUCT,
    TRUE,
    DamagedParquet,
    Struct,
    TooManyValues,
    read_struct,
    write_struct,
)

_POINT: Struct = {1: (I64, 7), 2: (TRUE, True)}
NESTED: Struct = {1: (STRUCT, _POINT), 2: (LIST, (STRUCT, [_POINT] * 3)), 3: (LIST, (BINARY, [b""] * 5))}
VALUES = 1 + 3 + 3 + 3 + 3 * 3 + 5
"""Each struct, each field and each element counts once."""


def test_values_are_counted_wherever_they_stand() -> None:
    data = write_struct(NESTED)
    assert read_struct(data, most_values=VALUES)[0] == NESTED
    with pytest.raises(TooManyValues):
        read_struct(data, most_values=VALUES - 1)


@pytest.mark.parametrize("number", [0, 1, -1, 2**31, -(2**63), 2**63 - 1])
def test_numbers_of_64_bits_are_read_as_they_were_written(number: int) -> None:
    assert read_struct(write_struct({1: (I64, number)}))[0] == {1: (I64, number)}


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x03", b"\xff" * 9 + b"\x7f", b"\xff" * 10 + b"\x01"])
def test_numbers_of_more_than_64_bits_are_refused(data: bytes) -> None:
    """Other readers cut them, and see another number."""
    with pytest.raises(DamagedParquet, match="more than 64 bits"):
        read_struct(b"\x16" + data + b"\0")


def test_a_struct_of_more_fields_than_any_of_parquet_is_refused() -> None:
    with pytest.raises(DamagedParquet, match="more fields than any"):
        read_struct(write_struct(dict.fromkeys(range(1, 100), (I64, 1))))
