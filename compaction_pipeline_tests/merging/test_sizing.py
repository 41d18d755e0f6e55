"""One rule says where an output file ends. The path that encodes rows and the path that copies bytes both follow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.merging.writing.sizing import FileEnds, FileSizing, Progress, rows_to_hold
from compaction_pipeline_tests.merging.files import Table

ROW_BYTES = 10


def _ends(rows_left: int = 1_000_000) -> FileEnds:
    """The rule for files of 1,000 bytes whose rows take 10 bytes. A remainder of less than 125 bytes is a fragment."""
    return FileEnds(FileSizing(1000, 125, 1 << 20), Progress(rows_left, ROW_BYTES))


@pytest.mark.parametrize(
    ("rows", "taken_bytes", "cut"),
    [(99, 0, None), (100, 0, 100), (101, 0, 100), (500, 700, 30), (29, 700, None), (500, 1200, 1)],
)
def test_a_file_ends_at_its_target(rows: int, taken_bytes: float, cut: int | None) -> None:
    assert _ends().cut(rows, taken_bytes) == cut


def test_rows_that_would_be_a_fragment_stay_in_the_last_file() -> None:
    assert _ends(rows_left=0).cut(112, 0) is None
    assert _ends(rows_left=0).cut(113, 0) == 100
    assert _ends(rows_left=10).cut(112, 0) == 100


def test_the_live_share_of_the_rows_so_far_says_how_many_are_still_to_come() -> None:
    progress = Progress(1000, ROW_BYTES, rows_seen=500, rows_kept=10)
    assert progress.rows_left() == 10
    assert FileEnds(FileSizing(1000, 125, 1 << 20), progress).cut(102, 0) is None


def test_written_bytes_tell_how_many_rows_fit_into_a_file() -> None:
    ends = _ends()
    ends.learn(file_bytes=400, rows=20)
    assert ends.cut(500, 400) == 30
    assert not ends.is_full(960)
    assert ends.is_full(961)


@pytest.mark.parametrize(("taken_bytes", "ends"), [(0, False), (800, False), (801, True), (1000, True)])
def test_a_row_group_that_cannot_be_cut_goes_where_it_misses_the_target_least(taken_bytes: float, ends: bool) -> None:
    assert _ends().ends_before(40, 400, taken_bytes) is ends
    assert not _ends(rows_left=0).ends_before(12, 400, taken_bytes)


@given(rows=st.integers(1, 10_000), row_bytes=st.floats(0, 1e6), room=st.floats(-1e6, 1e9))
def test_a_row_group_takes_rows_until_one_fills_it(rows: int, row_bytes: float, room: float) -> None:
    held = rows_to_hold(rows, row_bytes, room)
    assert 1 <= held <= rows
    # Without its last row, the row group would leave room.
    assert held == 1 or (held - 1) * max(row_bytes, 1.0) <= room


def _noise(rows: int, seed: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    return [{"id": int(value), "name": f"{value:x}"} for value in generator.integers(0, 1 << 60, rows)]


# A bloom filter is made from values. So the rows of a table that asks for one are decoded and encoded, never copied.
_ENCODES = {"write.parquet.bloom-filter-enabled.column.name": "true", "write.parquet.bloom-filter-max-bytes": "64"}


@pytest.mark.parametrize("properties", [{}, _ENCODES], ids=["copied", "encoded"])
def test_both_paths_end_files_at_the_target_and_leave_no_fragment(tmp_path: Path, properties: dict[str, str]) -> None:
    table = Table(tmp_path, properties=dict(properties))
    for seed in range(40):
        table.append(_noise(1500, seed), use_dictionary=False)
    total = sum(file.file_size_bytes for file in table.inputs)
    for files in (1, 3, 5):
        # The last 5 % are less than a fragment, which is an eighth of the target.
        target = int(total / (files + 0.05))
        result = table.merge(target=target)
        assert result.error is None, result.error
        sizes = [output.file_size_bytes for output in result.outputs]
        assert len(sizes) == files
        assert all(0.85 * target <= size <= 1.2 * target for size in sizes)
