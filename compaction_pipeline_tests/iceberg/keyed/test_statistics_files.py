"""A statistics file that cannot be read stops the table, and the message names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.formats.puffin import puffin_of
from compaction_pipeline.iceberg.keyed.sequences import blobs_in


def test_a_statistics_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.puffin"
    whole = puffin_of([("a", b"{}")], 1, 1).content
    path.write_bytes(whole)
    assert blobs_in(PyArrowFileIO(), str(path), "a") == [b"{}"]
    path.write_bytes(whole[:-1])
    with pytest.raises(TableRefused, match=r"statistics file .*/x\.puffin cannot be read: .*; restore it"):
        blobs_in(PyArrowFileIO(), str(path), "a")
