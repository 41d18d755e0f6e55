"""Chooses the zstd level of a column if the table sets none: of the cheap levels, the one that makes a sample of the values smallest.

Level 1 looks for matches. Random identifiers, prices or times have none: level 1 then gives larger pages than a faster level,
and takes 1.5 times as long. The best level depends on the values alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

DEFAULT_LEVEL = 1
_FASTER_LEVELS = (-1, -2)
_SAMPLE_BYTES = 64 * 1024
_LEAST_BYTES = 4 * 1024
_WIDEST_DECIMAL = 18
"""Parquet stores a decimal of at most this many digits as a number of eight bytes."""


def best_level(column: pa.Array) -> int:
    """The level for a column (a chunked array). It is the default if values are not all of four or eight bytes, or if there are too few."""
    longest = max(column.chunks, key=len, default=None)
    if longest is None:
        return DEFAULT_LEVEL
    sample = _sample(longest)
    if len(sample) < _LEAST_BYTES:
        return DEFAULT_LEVEL
    sizes = {level: len(pa.Codec("zstd", compression_level=level).compress(sample)) for level in (DEFAULT_LEVEL, *_FASTER_LEVELS)}
    return min(sizes, key=lambda level: sizes[level])


def _sample(array: pa.Array) -> bytes:
    """Values from the middle of an array, in Parquet's plain encoding. Empty for types that are not sampled."""
    arrow = array.type
    decimal = pa.types.is_decimal128(arrow) and 9 < arrow.precision <= _WIDEST_DECIMAL
    if not decimal and not (pa.types.is_primitive(arrow) and arrow.bit_width in (32, 64)):
        return b""
    width = 8 if decimal else arrow.bit_width // 8
    rows = min(len(array), _SAMPLE_BYTES // width)
    values = array.slice((len(array) - rows) // 2, rows).drop_null()
    if not len(values):
        return b""
    words = 2 if decimal else 1
    numbers = np.frombuffer(values.buffers()[1], dtype=f"<u{width}", count=words * (values.offset + len(values)))
    # The number of a decimal is the lower half of its sixteen bytes.
    return numbers[words * values.offset :: words].tobytes()
