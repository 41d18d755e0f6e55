"""What use cases need in order to merge: an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.core.work.work import Work


class MergeEngine(Protocol):
    """Merges the files of tasks. It never touches a table's metadata."""

    def must_start(self, task: MergeInput[Work] | None) -> bool:
        """Return whether `ready` must be called before this task is merged; without a task, before any task is polled."""

    def ready(self) -> None:
        """Start the engine, or find it running. A worker calls it when `must_start` says so, and no task loses an attempt when it fails.

        Raises ConfigError when the engine can never start with its settings, and StorageUnavailable when it does not start now.
        """

    def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
        """Merge work of one table, and yield one result for each piece of work as soon as it ends, in any order.

        A task that fails yields a result with `error`; it never raises. `file_io` are the FileIO properties, secrets included, that open
        the table's files.
        """

    def cancel(self, attempt_id: AttemptId) -> None:
        """Stop the merge of this attempt as soon as possible; its result is a failure then. Another thread waits for that result.

        Nothing happens when the attempt is not being merged, or when the engine cannot stop a merge. It never raises.
        """

    def used_so_far(self, attempt_id: AttemptId) -> UsedSoFar | None:
        """Return what the merge of this attempt has used until now; None when it is not being merged, or when nobody here can see it.

        Another thread waits for its result. It never raises.
        """

    def close(self) -> None:
        """Free what the engine holds, for example a Spark session that it started."""
