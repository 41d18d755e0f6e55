"""Where the files of a task of a plain table go, and what they are called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote_plus

from compaction_pipeline.core.tables.node import Partition

FilePaths = Callable[[Partition, int], str]
"""Gives each new file of a writer a path of its own, from its partition and its number."""


def partition_folder(folder: str, partition: Partition) -> str:
    """The folder of a partition's new files, without a slash at its end. `folder` is that of the table's data files."""
    parts = [f"{quote_plus(value.name)}={quote_plus('null' if value.value is None else str(value.value))}" for value in partition]
    return "/".join([folder, *parts])


@dataclass(frozen=True)
class OutputNames:
    """Paths of the form `<folder>/<partition path>/<prefix>-<n>.parquet`. The prefix holds the attempt, the task and a random suffix.

    `core.work.reported_paths` compares the paths that a worker reports with this form.
    """

    folder: str
    prefix: str

    def path(self, partition: Partition, number: int, suffix: str = "") -> str:
        """The path of the file with this number."""
        return f"{partition_folder(self.folder, partition)}/{self.prefix}-{number:05d}{suffix}.parquet"
