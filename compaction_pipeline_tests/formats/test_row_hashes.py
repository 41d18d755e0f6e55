"""Rows have equal hashes when they are equal, however Arrow holds them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_pipeline.formats import row_hashes as row_hashes_module
from compaction_pipeline.formats.row_hashes import column_ids, hash_columns
from compaction_pipeline_tests.formats.rows import ROW, SCHEMA


def _hashes(batch: Any) -> Any:
    return hash_columns(zip(column_ids(batch.schema), batch.columns, strict=True), batch.num_rows)


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(ROW, min_size=2, max_size=8))
def test_row_hashes_are_equal_only_for_equal_rows(rows: list[dict[str, Any]]) -> None:
    batch = pa.Table.from_pylist(rows, SCHEMA).combine_chunks().to_batches()[0]
    hashes = _hashes(batch).tolist()
    for i, first in enumerate(batch.to_pylist()):
        for j, second in enumerate(batch.to_pylist()):
            assert (hashes[i] == hashes[j]) == (repr(first) == repr(second))


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=12), step=st.integers(1, 5), offset=st.integers(0, 3))
def test_rows_hash_alike_in_steps_and_alone(rows: list[dict[str, Any]], step: int, offset: int) -> None:
    batch = pa.Table.from_pylist(rows, SCHEMA).combine_chunks().to_batches()[0].slice(offset)
    alone = [int(_hashes(pa.RecordBatch.from_pylist([row], schema=SCHEMA))[0]) for row in batch.to_pylist()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_hashes_module, "STEP_ROWS", step)
        assert _hashes(batch).tolist() == alone


@pytest.mark.parametrize("lengths", [[0, 7, 8, 9, 16], [95, 96, 97, 104, 300], [100] * 5, [3, 200, 0, 96, 15]])
def test_texts_of_any_length_hash_by_their_bytes_alone(lengths: list[int]) -> None:
    texts = ["".join(chr(97 + (place * 7 + index) % 26) for place in range(length)) for index, length in enumerate(lengths)]
    together = _hashes(pa.RecordBatch.from_pydict({"s": ["offset", *texts, "behind"]}).slice(1, len(texts)))
    alone = [int(_hashes(pa.RecordBatch.from_pydict({"s": [text]}))[0]) for text in texts]
    changed = [int(_hashes(pa.RecordBatch.from_pydict({"s": [text[:-1] + "~"]}))[0]) for text in texts]
    assert together.tolist() == alone
    assert not set(alone) & set(changed)


def test_dictionary_arrays_hash_as_their_values() -> None:
    values = pa.array(["a", None, "b", "a"])
    plain = pa.RecordBatch.from_arrays([values], names=["s"])
    encoded = pa.RecordBatch.from_arrays([values.dictionary_encode()], names=["s"])
    assert _hashes(plain).tolist() == _hashes(encoded).tolist()


def test_a_dictionary_that_holds_null_or_nothing_hashes_as_its_values() -> None:
    plain = pa.RecordBatch.from_pydict({"s": pa.array(["a", None, "a"])})
    inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), pa.array(["a", None]))
    assert _hashes(pa.RecordBatch.from_pydict({"s": inside})).tolist() == _hashes(plain).tolist()
    nothing = pa.DictionaryArray.from_arrays(pa.array([None, None], pa.int32()), pa.array([], pa.string()))
    assert _hashes(pa.RecordBatch.from_pydict({"s": nothing})).tolist() == _hashes(plain)[[1, 1]].tolist()
