"""Where the files of a task go, and what they are called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote_plus

from compaction_pipeline.core.tables.node import Partition


class FilePaths(Protocol):
    """Gives each new file of a writer a path of its own."""

    def path(self, partition: Partition, number: int) -> str:
        """The path of the writer's file with this number."""


@dataclass(frozen=True)
class OutputNames:
    """Paths of the form `<folder>/<partition path>/<prefix>-<n>.parquet`. The prefix holds the attempt, the task and a random suffix."""

    folder: str
    prefix: str

    def path(self, partition: Partition, number: int, suffix: str = "") -> str:
        """The path of the file with this number."""
        parts = [f"{quote_plus(value.name)}={quote_plus('null' if value.value is None else str(value.value))}" for value in partition]
        return "/".join([self.folder, *parts, f"{self.prefix}-{number:05d}{suffix}.parquet"])
