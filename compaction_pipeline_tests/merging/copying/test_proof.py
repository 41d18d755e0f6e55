"""A copier or filter that loses, doubles or swaps something, or writes a wrong footer, fails the proof. No file of its attempt is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema

from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.formats.parquet.chunks import Piece
from compaction_pipeline.formats.parquet.segments import Segment
from compaction_pipeline.formats.parquet.thrift import field
from compaction_pipeline.merging.copying import assemble, assembled_file, proof
from compaction_pipeline.merging.copying.assemble import Assembler
from compaction_pipeline.merging.copying.assembled_file import ChunkWriter
from compaction_pipeline.merging.copying.proof import CopyProof, are_kept, handed_digest, kept_rows, part_of
from compaction_pipeline_tests.merging.files import MIB, Table, long, text

_Break = Callable[[pytest.MonkeyPatch], None]


def _table(tmp_path: Path) -> Table:
    """A table with three small files of equal length, and one file whose row group is copied whole.

    In the small files the ids have no dictionary and the names have one.
    """
    table = Table(tmp_path)
    for number in range(3):
        rows = [{"id": (index * 1_000_003 + number) << 20, "name": f"n{(index + number) % 3}"} for index in range(1000)]
        table.append(rows, use_dictionary=["name"])
    noise = np.random.default_rng(1).integers(0, 1 << 60, 30_000).tolist()
    table.append([{"id": each, "name": f"x{each}"} for each in noise], use_dictionary=False)
    return table


def _every_segment(change: Callable[[int, Segment], Sequence[Segment]]) -> _Break:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        add, seen = Assembler.add, []

        def broken(self: Assembler, segment: Segment) -> None:
            seen.append(segment)
            for each in change(len(seen), segment):
                add(self, each)

        patch.setattr(Assembler, "add", broken)

    return breaks


def _flipped(data: memoryview) -> memoryview:
    copy = bytearray(data)
    copy[len(copy) // 2] ^= 1
    return memoryview(copy)


def _flipped_segment(number: int, segment: Segment) -> Sequence[Segment]:
    if number != 2:
        return [segment]
    pieces = {top: tuple(replace(piece, data=_flipped(piece.data)) for piece in each) for top, each in segment.pieces.items()}
    return [replace(segment, pieces=pieces)]


def _changed_name(number: int, segment: Segment) -> Sequence[Segment]:
    [part] = segment.parts
    names = part.batch.column(0)
    changed = pa.RecordBatch.from_arrays([names.take(pa.array([1, 0, *range(2, len(names))]))], schema=part.batch.schema)
    return [replace(segment, parts=(replace(part, batch=changed),))] if number == 1 else [segment]


def _pieces(change: Callable[[list[Piece]], list[Piece]]) -> _Break:
    """Change the pieces of the first column only."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        pieces = assemble._Group.pieces

        def broken(self: Any, *arguments: Any) -> list[list[Piece]]:
            first, *others = pieces(self, *arguments)
            return [change(first), *others]

        patch.setattr(assemble._Group, "pieces", broken)

    return breaks


def _swapped_names(patch: pytest.MonkeyPatch) -> None:
    rejoined = assemble.rejoined

    def broken(arrays: Sequence[Any], column: Any) -> Any:
        return rejoined([*arrays[1::-1], *arrays[2:]], column)

    patch.setattr(assemble, "rejoined", broken)


def _row_groups(times: int) -> _Break:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        add = Assembler.add_row_group

        def broken(self: Assembler, rows: int, chunks: Any, data: Any, nans: Any) -> None:
            whole = [[bytes(part) for part in parts] for parts in data]
            for _ in range(times):
                add(self, rows, chunks, [[memoryview(part) for part in parts] for parts in whole], nans)

        patch.setattr(Assembler, "add_row_group", broken)

    return breaks


def _written(change: Callable[[memoryview], memoryview]) -> _Break:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        write = ChunkWriter.write

        def broken(self: ChunkWriter, data: memoryview, before: int = 0) -> int:
            return write(self, change(data) if len(data) > 100_000 else data, before)

        patch.setattr(ChunkWriter, "write", broken)

    return breaks


def _offset_off_by_one(patch: pytest.MonkeyPatch) -> None:
    moved = assembled_file.moved_chunk

    def broken(*arguments: Any) -> Any:
        column = moved(*arguments)
        field(column, 3)[9] = (6, field(field(column, 3), 9) + 1)
        return column

    patch.setattr(assembled_file, "moved_chunk", broken)


def _one_row_more(patch: pytest.MonkeyPatch) -> None:
    group = assembled_file.row_group
    patch.setattr(assembled_file, "row_group", lambda columns, rows, *others: group(columns, rows + 1, *others))


def _one_value_more(patch: pytest.MonkeyPatch) -> None:
    moved = assembled_file.moved_chunk

    def broken(*arguments: Any) -> Any:
        column = moved(*arguments)
        field(column, 3)[5] = (6, field(field(column, 3), 5) + 1)
        return column

    patch.setattr(assembled_file, "moved_chunk", broken)


_BREAKS: dict[str, _Break] = {
    "segment dropped": _every_segment(lambda number, segment: [] if number == 2 else [segment]),
    "segment doubled": _every_segment(lambda number, segment: [segment] * (1 + (number == 2))),
    "byte flipped": _every_segment(_flipped_segment),
    "decoded values changed": _every_segment(_changed_name),
    "pieces of one column swapped": _pieces(lambda pieces: [pieces[1], pieces[0], *pieces[2:]]),
    "piece of one column dropped": _pieces(lambda pieces: pieces[1:]),
    "piece of one column doubled": _pieces(lambda pieces: [pieces[0], *pieces]),
    "piece in another's place": _pieces(lambda pieces: [pieces[0], pieces[0], *pieces[2:]]),
    "decoded parts of one column swapped": _swapped_names,
    "row group dropped": _row_groups(0),
    "row group doubled": _row_groups(2),
    "byte of a row group flipped": _written(_flipped),
    "end of a row group cut": _written(lambda data: data[:-1]),
    "footer offset off by one": _offset_off_by_one,
    "footer of one row more": _one_row_more,
    "footer of one value more": _one_value_more,
}


@pytest.mark.parametrize("name", _BREAKS)
def test_a_broken_copier_fails_its_attempt_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table = _table(tmp_path)
    sound = table.merge(target=MIB)
    assert sound.error is None
    assert [file.record_count for file in sound.outputs] == [33_000]
    assert len(sound.outputs[0].split_offsets) == 2
    for path in (tmp_path / "table").rglob("*.parquet"):
        path.unlink()
    _BREAKS[name](monkeypatch)
    result = table.merge(target=MIB)
    assert "nothing" in (result.error or ""), result
    assert result.outputs == ()
    assert list((tmp_path / "table").rglob("*.parquet")) == []


# ---- columns that are encoded before their row group is full


def _ahead(change: Callable[[int, dict[int, tuple[Piece, ...]]], dict[int, tuple[Piece, ...]]]) -> _Break:
    """Change the pieces of each stretch of rows. `change` gets the number of the stretch, from 1."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        ahead, seen = assemble._Group.ahead, []

        def broken(self: Any, *arguments: Any) -> Any:
            pieces, nans = ahead(self, *arguments)
            seen.append(pieces)
            return change(len(seen), pieces), nans

        patch.setattr(assemble._Group, "ahead", broken)

    return breaks


def _held_ahead(change: Callable[[Segment], Segment]) -> _Break:
    """Change the first segment of encoded pages that is held in place of decoded rows."""

    def breaks(patch: pytest.MonkeyPatch) -> None:
        encode, changed = Assembler._encode_ahead, []

        def broken(self: Assembler) -> None:
            encode(self)
            if self._held[-1].pieces and not changed:
                changed.append(self._held[-1])
                self._held[-1] = change(self._held[-1])

        patch.setattr(Assembler, "_encode_ahead", broken)

    return breaks


def _other_values(patch: pytest.MonkeyPatch) -> None:
    together = assemble._Group._encoded_together

    def broken(self: Any, columns: Any, nans: Any) -> Any:
        for number, segment in enumerate(self._segments):
            parts = tuple(replace(part, batch=part.batch.take(pa.array(range(part.batch.num_rows)[::-1]))) for part in segment.parts)
            self._segments[number] = replace(segment, parts=parts)
        return together(self, columns, nans)

    patch.setattr(assemble._Group, "_encoded_together", broken)


_AHEAD_BREAKS: dict[str, _Break] = {
    "columns swapped": _ahead(lambda _, pieces: {0: pieces[2], 2: pieces[0]}),
    "column of other rows": _ahead(lambda number, pieces: pieces | {0: pieces[2]} if number == 2 else pieces),
    "byte flipped": _ahead(lambda number, pieces: pieces | {0: tuple(replace(piece, data=_flipped(piece.data)) for piece in pieces[0])}),
    "piece of another stretch": _ahead(lambda number, pieces, kept=[]: kept.append(pieces) or kept[0]),  # type: ignore[misc]
    "rows dropped": _held_ahead(lambda segment: Segment(0, 0.0)),
    "decoded columns dropped": _held_ahead(lambda segment: replace(segment, parts=segment.parts[1:])),
    "decoded columns doubled": _held_ahead(lambda segment: replace(segment, parts=segment.parts * 2)),
    "rows in another order": _other_values,
    "rows that nobody looked at": lambda patch: patch.setattr(assemble._Group, "_prove", lambda *_: None),
}


@pytest.mark.parametrize("name", _AHEAD_BREAKS)
def test_a_broken_encoder_of_rows_ahead_fails_its_attempt_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(assemble, "_AHEAD_BYTES", 1)
    table = Table(tmp_path, [Schema(long(1, "id"), text(2, "name"), long(3, "other"))])
    for number in range(3):
        rows = [{"id": index * 7 + number, "name": f"n{index % 3}", "other": index * 7 - number} for index in range(1000)]
        file = table.append(rows, use_dictionary=["name"])
        table.delete_positions([(file.path, 4)])
    ahead = []
    with monkeypatch.context() as watched:
        watched.setattr(assemble._Group, "ahead", lambda *arguments, of=assemble._Group.ahead: ahead.append(1) or of(*arguments))
        assert table.merge().rows_written == 3 * 999
    assert len(ahead) == 3
    for path in (tmp_path / "table").rglob("*.parquet"):
        path.unlink()
    _AHEAD_BREAKS[name](monkeypatch)
    result = table.merge()
    assert "nothing" in (result.error or ""), result
    assert result.outputs == ()
    assert list((tmp_path / "table").rglob("*.parquet")) == []


# ---- rows that remain when others are deleted

_COLUMNS: dict[str, Any] = {
    "long": pa.array([1, 2, 3, 4, 5]),
    "long with NULL": pa.array([1, None, 3, None, 5]),
    "double": pa.array([0.0, -0.0, float("nan"), 1.5, -1.5]),
    "float with NULL": pa.array([0.0, None, float("nan"), 1.5, -1.5], pa.float32()),
    "boolean": pa.array([True, False, None, False, True]),
    "decimal": pa.array([1, 2, 3, None, 5], pa.decimal128(12, 2)),
    "text": pa.array(["a", "", "ccc", None, "a longer text than eight bytes"]),
    "binary": pa.array([b"a", b"", b"ccc", b"\x00", b"\x00\x00"]),
    "fixed": pa.array([b"aa", b"bb", b"cc", b"dd", b"ee"], pa.binary(2)),
    "uuid": pa.array([bytes([number] * 16) for number in range(5)], pa.binary(16)).cast(pa.uuid()),
    "dictionary": pa.array(["a", "b", None, "a", "c"]).dictionary_encode(),
    "timestamp": pa.array([1, 2, 3, 4, None], pa.timestamp("us", "UTC")),
    "struct": pa.array([{"x": 1.0}, {"x": float("nan")}, None, {"x": None}, {"x": 5.0}]),
    "list": pa.array([[1], [], None, [2, None], [3, 4]]),
    "map": pa.array([[("a", 1)], [], None, [("b", None)], [("c", 3)]], pa.map_(pa.string(), pa.int64())),
}
_KEEP = np.array([True, False, True, True, True])


@pytest.mark.parametrize("step_bytes", [1, 1 << 20])
@pytest.mark.parametrize("name", _COLUMNS)
def test_remaining_rows_are_distinguished_from_any_others(monkeypatch: pytest.MonkeyPatch, name: str, step_bytes: int) -> None:
    monkeypatch.setattr(proof, "_STEP_BYTES", step_bytes)
    batch = pa.RecordBatch.from_arrays([_COLUMNS[name]], names=["value"])
    kept = kept_rows(batch, _KEEP)
    assert kept.num_rows == 4
    assert are_kept(batch, _KEEP, batch.take(pa.array([0, 2, 3, 4])))
    assert kept_rows(batch.slice(1), _KEEP[1:]).num_rows == 3
    for others in ([0, 1, 3, 4], [0, 2, 4, 3], [0, 2, 3], [0, 2, 3, 4, 4], [0, 2, 3, 3], []):
        assert not are_kept(batch, _KEEP, batch.take(pa.array(others, pa.int64()))), others


def test_zeros_and_nulls_beside_values_differ() -> None:
    keep = np.array([True])

    def batch(value: Any) -> Any:
        return pa.RecordBatch.from_arrays([pa.array([value], pa.float64())], names=["value"])

    assert are_kept(batch(float("nan")), keep, batch(float("nan")))
    for one, two in ((0.0, -0.0), (0.0, None), (None, 1.0), (float("nan"), None)):
        assert not are_kept(batch(one), keep, batch(two))


def _filter_breaks(change: Callable[[Any, Any], Any]) -> _Break:
    def breaks(patch: pytest.MonkeyPatch) -> None:
        filtered = proof._filtered
        patch.setattr(proof, "_filtered", lambda batch, keep: change(filtered(batch, keep), batch))

    return breaks


_FILTER_BREAKS: dict[str, _Break] = {
    "row dropped": _filter_breaks(lambda kept, _: kept.slice(1)),
    "deleted row revived": _filter_breaks(lambda kept, batch: batch),
    "row in another's place": _filter_breaks(lambda kept, batch: batch.slice(0, kept.num_rows)),
    "values of one column swapped": _filter_breaks(
        lambda kept, _: kept.set_column(1, kept.schema.field(1), kept.column(1).take(pa.array([1, 0, *range(2, kept.num_rows)])))
    ),
}


@pytest.mark.parametrize("name", _FILTER_BREAKS)
def test_a_broken_filter_fails_its_attempt_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    table = Table(tmp_path)
    table.append([{"id": number, "name": f"n{number}"} for number in range(10)])
    table.delete_equal([{"id": 4}], [long(1, "id")])
    assert table.merge().rows_written == 9
    for path in (tmp_path / "table").rglob("attempt-*.parquet"):
        path.unlink()
    _FILTER_BREAKS[name](monkeypatch)
    result = table.merge()
    assert result.end_reason is EndReason.DIGEST_MISMATCH
    assert "nothing of this attempt is used" in (result.error or "")
    assert result.outputs == ()
    assert list((tmp_path / "table").rglob("attempt-*.parquet")) == []


# ---- rows that are handed to the encoder


def _handed(batch: Any, handed: Any, *, first: int = 100) -> bool:
    source, written = CopyProof(), CopyProof()
    part = part_of((0, 1), batch, 100, source)
    written.add(handed_digest(part, handed, first))
    return source.value == written.value


def _texts(values: list[str], *numbers: int) -> Any:
    indices = pa.array(numbers, pa.int32())
    return pa.RecordBatch.from_arrays(
        [pa.array(range(len(numbers))), pa.DictionaryArray.from_arrays(indices, values)], names=["number", "text"]
    )


def test_rows_are_proved_only_at_the_place_where_they_were_read() -> None:
    batch = _texts(["a", "b"], 0, 1, 1, 0)
    same_numbers = batch.column(0)
    assert _handed(batch, batch)
    assert _handed(batch, batch.slice(0))
    renumbered = _texts(["b", "a"], 1, 0, 0, 1).set_column(0, "number", same_numbers)
    twice = _texts(["b", "a", "b"], 1, 2, 0, 1).set_column(0, "number", same_numbers)
    plain = batch.set_column(1, "text", batch.column(1).dictionary_decode())
    copied = pa.RecordBatch.from_pylist(plain.to_pylist(), schema=plain.schema)
    for same in (renumbered, twice, plain, copied):
        assert _handed(batch, same)
    assert not _handed(batch, batch, first=101)
    assert not _handed(batch, batch, first=0)
    for other in (batch.slice(1), batch.slice(0, 3), batch.slice(0, 0), batch.take(pa.array([1, 0, 2, 3])), _texts(["b", "a"], 0, 1, 1, 0)):
        assert not _handed(batch, other)


def test_rows_in_slices_prove_the_whole() -> None:
    source, written = CopyProof(), CopyProof()
    batch = _texts(["a", "b"], 0, 1, 1, 0)
    part = part_of((0, 1), batch, 7, source)
    written.add(handed_digest(part, batch.slice(0, 1), 7))
    written.add(handed_digest(part, batch.slice(1, 2), 8))
    assert source.value != written.value
    written.add(handed_digest(part, batch.slice(3, 1), 10))
    assert source.value == written.value
    written.add(handed_digest(part, batch.slice(3, 1), 10))
    assert source.value != written.value
