"""A broken copier is caught, whatever it loses, doubles, swaps or says in the footer; nothing of what it wrote is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from compaction_pipeline.spark.copy import assemble, assembled_file
from compaction_pipeline.spark.copy.assemble import Assembler, Segment
from compaction_pipeline.spark.copy.assembled_file import ChunkWriter
from compaction_pipeline.spark.copy.chunks import Piece
from compaction_pipeline.spark.copy.thrift import field
from compaction_pipeline_tests.spark.files import MIB, Table

_Break = Callable[[pytest.MonkeyPatch], None]


def _table(tmp_path: Path) -> Table:
    """Three small files (ids as bytes, names with dictionaries, equally long) and one whose row group moves as it is."""
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
    """Only the first column's pieces are changed."""

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
