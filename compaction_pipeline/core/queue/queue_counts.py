"""How many tasks have each status, as people are shown them."""

from __future__ import annotations

from dataclasses import dataclass

from compaction_pipeline.core.queue.open_work import OpenTasks


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """How many tasks have each status. Finished tasks count as long as the state database keeps them.

    `pending` counts the tasks that a worker may take. `paused` counts those that wait until their tables are resumed. `retrying` counts
    those that failed and wait to be tried again, and `failed` those that are not tried again. `replaced` counts the CANCELED tasks whose
    files a newer plan took into larger tasks, and `canceled` the others.
    """

    pending: int = 0
    paused: int = 0
    executing: int = 0
    prepared: int = 0
    committed: int = 0
    failed: int = 0
    canceled: int = 0
    retrying: int = 0
    replaced: int = 0

    @property
    def open(self) -> int:
        """Tasks that have not ended."""
        return self.pending + self.paused + self.executing + self.prepared + self.retrying

    @property
    def open_tasks(self) -> OpenTasks:
        """The same tasks by what they wait for."""
        return OpenTasks(self.pending, self.executing, self.prepared, self.paused, self.retrying)
