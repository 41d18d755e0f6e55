"""A kernel that loses, doubles or changes rows on their way to a file. No fault outside the program does that, so it is patched in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from compaction_pipeline.merging.writing.write import DataWriter


def write_otherwise(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Sequence[Any]]) -> None:
    """Let each batch of rows be written as these batches from now on."""
    write = DataWriter.write

    def broken(self: DataWriter, partition: Any, batch: Any, *names: Any) -> None:
        for part in change(batch):
            write(self, partition, part, *names)

    monkeypatch.setattr(DataWriter, "write", broken)
