"""The hashes of whole columns are those of single keys."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.keyed.key_hash import key_hash
from compaction_pipeline.merging.keyed.key_hashes import key_hashes

_ascii = st.text(st.characters(max_codepoint=127), max_size=40) | st.sampled_from(["", "x" * 256, "x" * 257])
_longs = st.integers(-(2**63), 2**63 - 1)
_ints = st.integers(-(2**31), 2**31 - 1)
_odd_floats = st.sampled_from([0.0, -0.0, float("nan")])
_decimals = st.integers(-(10**37), 10**37).map(lambda unscaled: Decimal((unscaled < 0, tuple(map(int, str(abs(unscaled)))), -4)))
COLUMNS: list[tuple[str, Any, Any]] = [
    ("int", pa.int32(), _ints),
    ("long", pa.int64(), _longs),
    ("string", pa.string(), st.text()),
    ("string", pa.string(), _ascii),
    ("date", pa.date32(), _ints),
    ("time", pa.time64("us"), st.integers(0, 86_399_999_999)),
    ("timestamp", pa.timestamp("us"), _longs),
    ("timestamptz", pa.timestamp("us", "UTC"), _longs),
    ("decimal(38, 4)", pa.decimal128(38, 4), _decimals),
    ("uuid", pa.uuid(), st.binary(min_size=16, max_size=16)),
    ("binary", pa.binary(), st.binary(max_size=9)),
    ("fixed[5]", pa.binary(5), st.binary(min_size=5, max_size=5)),
    ("boolean", pa.bool_(), st.booleans()),
    ("float", pa.float32(), st.floats(width=32) | _odd_floats),
    ("double", pa.float64(), st.floats() | _odd_floats),
]


def array(values: list[Any], arrow: Any) -> Any:
    if isinstance(arrow, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(arrow, pa.array(values, arrow.storage_type))
    if pa.types.is_temporal(arrow):
        return pa.array(values, pa.int32() if arrow.bit_width == 32 else pa.int64()).cast(arrow)
    return pa.array(values, arrow)


@pytest.mark.parametrize(("kind", "arrow", "values"), COLUMNS, ids=[f"{kind}-{number}" for number, (kind, _, _) in enumerate(COLUMNS)])
@given(data=st.data())
def test_a_column_has_the_hashes_of_its_values(kind: str, arrow: Any, values: Any, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.tuples(st.none() | values, st.none() | _ints), max_size=12))
    columns = [array([key[0] for key in keys], arrow), array([key[1] for key in keys], pa.int32())]
    assert key_hashes(columns, [kind, "int"], len(keys)).tolist() == [key_hash(key, [kind, "int"]) for key in keys]


@given(texts=st.lists(st.none() | _ascii | st.text(max_size=5), max_size=12), first=st.integers(0, 12))
def test_a_part_of_an_array_has_the_hashes_of_its_own_values(texts: list[str | None], first: int) -> None:
    column = pa.array(texts, pa.string()).slice(first)
    assert key_hashes([column], ["string"], len(column)).tolist() == [key_hash([text], ["string"]) for text in texts[first:]]
