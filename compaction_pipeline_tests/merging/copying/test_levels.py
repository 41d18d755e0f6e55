"""The zstd level of a column depends on its values, unless the table sets a level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from compaction_pipeline.formats.parquet.levels import DEFAULT_LEVEL, best_level
from compaction_pipeline.merging.copying import assemble
from compaction_pipeline_tests.merging.files import Table, rows_of

_RANDOM = np.random.default_rng(1).integers(0, 1_000_000, 20_000)


@pytest.mark.parametrize(
    ("properties", "asked"),
    [
        ({}, True),
        ({"write.parquet.compression-level": "1"}, False),
        ({"write.parquet.compression-codec": "gzip"}, False),
    ],
)
def test_a_level_that_the_table_sets_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], asked: bool
) -> None:
    chosen: list[Any] = []
    monkeypatch.setattr(assemble, "best_level", lambda column: (chosen.append(column), best_level(column))[1])
    table = Table(tmp_path, properties=properties)
    rows = [{"id": int(value), "name": f"{value:x}"} for value in _RANDOM]
    file = table.append(rows, use_dictionary=False)
    table.delete_positions([(file.path, 0)])
    result = table.merge()
    assert result.error is None, result.error
    assert bool(chosen) is asked
    assert rows_of(result.outputs) == rows[1:]


def test_random_numbers_are_written_smaller_than_at_the_default_level(tmp_path: Path) -> None:
    def size(folder: str, properties: dict[str, str]) -> int:
        table = Table(tmp_path / folder, properties=properties)
        file = table.append([{"id": int(value), "name": "x"} for value in _RANDOM], use_dictionary=["name"])
        table.delete_positions([(file.path, 0)])
        [output] = table.merge().outputs
        return int(pq.read_metadata(output.path).row_group(0).column(0).total_compressed_size)

    assert size("free", {}) < size("set", {"write.parquet.compression-level": str(DEFAULT_LEVEL)})
