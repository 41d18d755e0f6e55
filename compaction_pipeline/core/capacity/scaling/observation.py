"""An observation says what was seen of a group in one minute. Decisions rest on observations alone, so they can be repeated later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

EVERY = timedelta(minutes=1)
"""A group is observed once in this time."""
SOON = timedelta(seconds=15)
"""A group with a policy is observed once in this time while tasks wait."""
AT_ONCE = timedelta(seconds=5)
"""It is observed once in this time when a task is about to have waited for too long, until it is known that it does."""
KEPT_FOR = timedelta(days=8)
"""Observations are kept for so long."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was seen of a group in the minute that ended at `at`. While tasks wait, the minutes of two observations overlap.

    `waiting` counts the tasks that a worker could take, without those that their team's limits hold; the first of them has waited for
    `oldest_wait`. `running` counts the attempts at the end of the minute, and `slots` those of the optimizers that take tasks.
    `idle_share` is the part of their slot time that held no attempt. Shares are from 0 to 1.

    None means that nobody knows it. `ended` counts the attempts that ended in the minute. `cpu_share` is the CPU that the optimizers used,
    of what their cores have. `attempt_cores` is how many cores an attempt used on average while it ran. `host_cpu_share` is the load of
    the busiest host that an optimizer runs on; on a cluster, that of the cores that it was given. `memory_share` is the highest memory that
    an optimizer needed, of its reserve. `memory_kills` counts the attempts and optimizers that were killed for memory.

    `up` counts the optimizers that have polled and take tasks, `starting` those that were started and have not polled, `draining` those
    that finish what they have. `is_silent` says that the container of the group was asked what runs in it, and did not answer.
    """

    at: datetime
    waiting: int
    oldest_wait: timedelta
    running: int
    slots: int
    idle_share: float | None = None
    ended: int | None = None
    cpu_share: float | None = None
    attempt_cores: float | None = None
    host_cpu_share: float | None = None
    memory_share: float | None = None
    memory_kills: int = 0
    up: int = 0
    starting: int = 0
    draining: int = 0
    is_silent: bool = False

    @property
    def busy_slots(self) -> float:
        """How many slots were busy on average; those that are busy at the end of the minute when nothing else is known."""
        return float(self.running) if self.idle_share is None else max(self.slots * (1 - self.idle_share), 0.0)
