"""The zstd level of a column depends on its values, unless the table sets a level."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compaction_pipeline.formats.parquet.levels import DEFAULT_LEVEL, best_level

_RANDOM = np.random.default_rng(1).integers(0, 1_000_000, 20_000)


def _plain(column: Any) -> bytes:
    return bytes(np.asarray(column).tobytes())


def test_numbers_drawn_at_random_get_the_level_that_makes_them_smallest() -> None:
    level = best_level(pa.chunked_array([pa.array(_RANDOM)]))
    assert level < DEFAULT_LEVEL
    sizes = {each: len(pa.Codec("zstd", compression_level=each).compress(_plain(_RANDOM))) for each in (level, DEFAULT_LEVEL)}
    assert sizes[level] < sizes[DEFAULT_LEVEL]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(_RANDOM, pa.timestamp("us")),
        pa.array([None, *_RANDOM[1:].tolist()]),
        pa.array(_RANDOM).slice(3),
        pa.array([Decimal(int(each)).scaleb(-2) for each in _RANDOM], pa.decimal128(12, 2)).slice(5),
    ],
    ids=["timestamp", "with NULL", "sliced", "decimal"],
)
def test_the_level_is_that_of_the_numbers_as_parquet_stores_them(column: Any) -> None:
    assert best_level(pa.chunked_array([column])) == best_level(pa.chunked_array([pa.array(_RANDOM)]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([], pa.int64()),
        pa.nulls(20_000, pa.int64()),
        pa.array([1, 2, 3]),
        pa.array([True, False] * 10_000),
        pa.array(["text"] * 10_000),
        pa.array(["text"] * 10_000).dictionary_encode(),
        pa.array([[1]] * 10_000),
        pa.array([Decimal(1)] * 10_000, pa.decimal128(38, 0)),
        pa.array([Decimal(1)] * 10_000, pa.decimal128(9, 0)),
        pa.array([b"0123456789abcdef"] * 10_000, pa.binary(16)).cast(pa.uuid()),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_and_few_values_get_the_default(column: Any) -> None:
    assert best_level(pa.chunked_array([column])) == DEFAULT_LEVEL
    assert best_level(pa.chunked_array([], type=column.type)) == DEFAULT_LEVEL
