"""What waits in each queue, and which queues no optimizer serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.queue.optimizer import SILENCE, Optimizer, OptimizerState
from compaction_pipeline.core.work.ends import EndReason


@dataclass(frozen=True, slots=True)
class QueueWork:
    """The tasks of one queue, by what they wait for, and what was merged of late.

    `pending` counts the tasks that a worker may take, and `waiting_since` says since when the first of them has waited. `paused` counts
    those that wait until their tables are resumed, and `held` those that wait because their team has reached a limit. `retrying` counts
    those that failed and are tried again, and `failed` those that are not. `merged` and `merged_bytes` count what was merged lately, and
    `refused_reports` the reports that could not be true; the asker says since when.
    """

    queue: str
    pending: int = 0
    paused: int = 0
    held: int = 0
    executing: int = 0
    prepared: int = 0
    retrying: int = 0
    failed: int = 0
    waiting_since: datetime | None = None
    merged: int = 0
    merged_bytes: int = 0
    refused_reports: int = 0

    @property
    def taken(self) -> int:
        """How much of the queue's capacity is taken: the tasks that are still to be merged, without those that have no turn."""
        return self.pending + self.executing + self.retrying


@dataclass(frozen=True, slots=True)
class MergedTotals:
    """How many tasks somebody merged, and the bytes of the data files that these tasks read."""

    tasks: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class EndedWork:
    """What ended in a span of time.

    `attempts` counts attempts by queue and end, `merged_bytes` the bytes of the data files that merged tasks read, by queue, and `commits`
    the commits by the status of their record. `cpu_seconds` is the CPU that the attempts used, by queue, as far as they told it in time.
    """

    attempts: Mapping[tuple[str, EndReason], int] = field(default_factory=dict)
    merged_bytes: Mapping[str, int] = field(default_factory=dict)
    commits: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: Mapping[str, float] = field(default_factory=dict)


def takes_tasks(optimizer: Optimizer, now: datetime) -> bool:
    """Return whether an optimizer takes tasks: it runs, and it was heard of lately.

    The second part matters while no keeper (a server or `keeper_sensor`) runs that would mark a silent optimizer as LOST.
    """
    return optimizer.state is OptimizerState.RUNNING and now - optimizer.touched_at < SILENCE


def served_queues(optimizers: Iterable[Optimizer], now: datetime) -> frozenset[str]:
    """Return the queues from which an optimizer takes tasks."""
    return frozenset(optimizer.group for optimizer in optimizers if takes_tasks(optimizer, now))
