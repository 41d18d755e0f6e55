"""Files of a table that a test counts: it hands them to what reads them, and is told which were opened, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compaction_pipeline.merging.reading.file_access import FileAccess


class CountedFiles(FileAccess):
    """`opened` holds the path of each file that was opened to be read, once each time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.opened: list[str] = []

    @contextmanager
    def parquet(self, path: str, *arguments: Any, **options: Any) -> Iterator[Any]:
        self.opened.append(path)
        with super().parquet(path, *arguments, **options) as found:
            yield found
