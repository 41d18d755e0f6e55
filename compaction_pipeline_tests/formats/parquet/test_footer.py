"""Footers of other writers: what of them is believed."""

from __future__ import annotations

import pytest

from compaction_pipeline.formats.parquet.footer import Footer


@pytest.mark.parametrize(
    ("created_by", "trusted"),
    [("parquet-cpp version 1.5.1-SNAPSHOT", False), ("parquet-cpp-arrow version 3.0.0", False), ("parquet-cpp-arrow version 4.0.0", True)],
)
def test_files_of_writers_with_known_faults_are_not_copied(created_by: str, trusted: bool) -> None:
    assert Footer((), (), (), (), created_by).trustworthy is trusted
