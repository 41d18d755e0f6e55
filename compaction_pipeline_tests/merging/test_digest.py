"""Equal bags of rows have equal digests, and others do not. So a kernel that loses, doubles or swaps rows or values is caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import Digest
from compaction_pipeline.merging.digest import RowDigest, SeenBatches
from compaction_pipeline_tests.formats.rows import ROW, SCHEMA
from compaction_pipeline_tests.merging.broken_writer import write_otherwise
from compaction_pipeline_tests.merging.files import Table


def _digest(table: Any, cuts: list[int]) -> Digest:
    digest = RowDigest()
    previous = 0
    for cut in [*sorted(min(cut, table.num_rows) for cut in cuts), table.num_rows]:
        digest.add(table.slice(previous, cut - previous))
        previous = cut
    return digest.value


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(ROW, max_size=12), data=st.data())
def test_equal_bags_have_equal_digests_whatever_their_order_and_batches(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    cuts = data.draw(st.lists(st.integers(0, 12), max_size=3))
    one, other = pa.Table.from_pylist(rows, SCHEMA), pa.Table.from_pylist(shuffled, SCHEMA)
    assert _digest(one, []) == _digest(other, cuts)


def test_values_swapped_between_rows_or_columns_change_the_digest() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    tables = [
        pa.Table.from_pylist(rows, schema)
        for rows in (
            [{"a": 1, "b": 2}, {"a": 3, "b": 4}],
            [{"a": 1, "b": 4}, {"a": 3, "b": 2}],
            [{"a": 2, "b": 1}, {"a": 3, "b": 4}],
            [{"a": 1, "b": 2}, {"a": 3, "b": None}],
            [{"a": 1, "b": 2}, {"a": 1, "b": 2}],
        )
    ]
    assert len({_digest(table, []) for table in tables}) == len(tables)


def _dropped(batch: Any) -> list[Any]:
    return [batch.slice(1)]


def _doubled(batch: Any) -> list[Any]:
    return [batch, batch.slice(0, 1)]


def _replaced(batch: Any) -> list[Any]:
    return [batch.slice(1), batch.slice(batch.num_rows - 1)]


def _swapped(batch: Any) -> list[Any]:
    names = batch.column(1).take(pa.array([1, 0, *range(2, batch.num_rows)]))
    return [pa.RecordBatch.from_arrays([batch.column(0), names], schema=batch.schema)]


@pytest.mark.parametrize("breakage", [_dropped, _doubled, _replaced, _swapped])
def test_a_broken_kernel_fails_its_attempt_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakage: Callable[[Any], list[Any]]
) -> None:
    # Because the rows are sorted, they are decoded and not copied as bytes.
    order = SortOrder(SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST), order_id=1)
    table = Table(tmp_path, order=order)
    table.append([{"id": index, "name": f"n{index}"} for index in range(10)])
    write_otherwise(monkeypatch, breakage)
    result = table.merge()
    assert result.end_reason is EndReason.DIGEST_MISMATCH
    assert "nothing of this attempt is used" in (result.error or "")
    assert result.outputs == ()
    assert list((tmp_path / "table").rglob("*.parquet")) == []


def _seen_batch() -> Any:
    return pa.RecordBatch.from_pydict(
        {"id": list(range(50)), "name": pa.array([f"n{index % 3}" for index in range(50)]).dictionary_encode()}
    )


def _assembled(batch: Any, columns: dict[int, Any]) -> Any:
    arrays = [columns.get(index, batch.column(index)) for index in range(batch.num_columns)]
    return pa.Table.from_arrays(arrays, names=batch.schema.names)


def _two_sides(batch: Any, table: Any, parts: list[Any]) -> tuple[Digest, Digest]:
    seen = SeenBatches()
    read, written = RowDigest(seen), RowDigest(seen)
    read.add(batch)
    written.add_assembled(table, parts)
    return read.value, written.value


def test_a_batch_that_was_seen_is_not_hashed_again() -> None:
    ids = np.arange(50)
    batch = _seen_batch().set_column(0, "id", pa.array(ids))
    seen = SeenBatches()
    read, written = RowDigest(seen), RowDigest(seen)
    read.add(batch)
    # The array of Arrow shares its memory, so these are other rows now, and their hashes are others.
    ids += 1
    assert batch.column(0).to_pylist() == list(range(1, 51))
    table = pa.Table.from_batches([batch]).unify_dictionaries()
    written.add_assembled(table, [batch])
    assert read.value == written.value


def test_dictionaries_that_were_renumbered_or_dissolved_keep_the_digest() -> None:
    batch = _seen_batch()
    names = batch.column(1)
    renumbered = pa.DictionaryArray.from_arrays(
        pa.array([2 - index for index in names.indices.to_pylist()], pa.int32()), ["n2", "n1", "n0"]
    )
    for other in (renumbered, names.dictionary_decode()):
        read, written = _two_sides(batch, _assembled(batch, {1: other}), [batch])
        assert read == written


@pytest.mark.parametrize("column", [0, 1])
def test_a_seen_batch_whose_table_holds_other_values_is_noticed(column: int) -> None:
    batch = _seen_batch()
    shifted = batch.column(column).take(pa.array([1, 0, *range(2, 50)]))
    read, written = _two_sides(batch, _assembled(batch, {column: shifted}), [batch])
    assert read.rows == written.rows
    assert read != written


@pytest.mark.parametrize("change", ["value", "null", "more nulls"])
def test_renumbered_texts_with_nulls_are_compared_row_for_row(change: str) -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3, 4], "name": pa.array(["a", None, "b", "a"]).dictionary_encode()})
    values = {"value": ["b", None, "a", "a"], "null": ["a", "b", None, "a"], "more nulls": ["a", None, None, "a"]}[change]
    same = pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], pa.int32()), ["b", "a"])
    other = pa.array(values).dictionary_encode()
    assert len(set(_two_sides(batch, _assembled(batch, {1: same}), [batch]))) == 1
    assert len(set(_two_sides(batch, _assembled(batch, {1: other}), [batch]))) == 2


def test_a_seen_batch_that_is_lost_doubled_or_cut_is_noticed() -> None:
    batch = _seen_batch()
    whole = pa.Table.from_batches([batch])
    for parts in ([], [batch, batch], [batch.slice(1)], [batch.slice(0, 49)]):
        read, written = _two_sides(batch, pa.Table.from_batches(parts, batch.schema), parts)
        assert read != written
    # The table itself decides, not the parts that it is said to consist of.
    for table, parts in ((whole.slice(1), [batch]), (pa.concat_tables([whole, whole]), [batch])):
        read, written = _two_sides(batch, table, parts)
        assert read != written


def test_seen_batches_are_forgotten_when_they_die() -> None:
    seen = SeenBatches()
    batch = _seen_batch()
    seen.remember(batch, Digest(1, 2, 3))
    assert seen.digest_of(batch) == Digest(1, 2, 3)
    assert seen.digest_of(batch.slice(0)) is None
    del batch
    assert len(seen) == 0
