"""Optimizers, which are long-running workers that take tasks of one group: their states, and when silence means that one is lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.leases.timeouts import LEASE, RENEWAL_INTERVAL
from compaction_pipeline.core.queue.group import EXTERNAL
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION

SILENCE = LEASE
"""The keeper marks an optimizer as LOST when nobody has heard of it for this long. The leases of its attempts end then too."""
HEARTBEAT = RENEWAL_INTERVAL
"""An optimizer says this often that it is there."""
NOT_ARRIVED = timedelta(seconds=15)
"""An attempt that its optimizer does not name in a heartbeat this long after the claim, or later, is over."""

AT_ONCE = timedelta(minutes=2)
"""An optimizer of a container that fails so soon after its start has done no work that was worth the start."""
MOST_OF_ONE_TOKEN = 500
"""So many optimizers that registered with one issued token may be live. More of them need another token."""
LONGEST_WHY = 500
"""An optimizer may say in so many characters which error ended it."""


class OptimizerState(str, Enum):
    """STARTING was asked of a container, and has not registered yet. RUNNING takes tasks. DRAINING finishes those that it has.

    LOST was silent for too long, or never registered. ENDED has said goodbye.
    """

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    LOST = "LOST"
    ENDED = "ENDED"

    @property
    def is_live(self) -> bool:
        """Whether it holds a place in its group: a process works, or is on its way."""
        return self is OptimizerState.STARTING or self.is_heard

    @property
    def is_heard(self) -> bool:
        """Whether a registered process speaks for it."""
        return self in (OptimizerState.RUNNING, OptimizerState.DRAINING)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """A registered optimizer, or one that is on its way. A process that starts again registers anew, so an id is one life of one process.

    `parallelism` is how many tasks it merges at a time. `memory_bytes` is the memory of all its processes together, 0 when unknown.
    `resource_id` is a name that the system that started it chose; it is "" for an optimizer that was started by hand. `container` names
    the container that started it, and `settings` is the `settings_digest` of what it was started with. They are `external` and "" for an
    optimizer that no container started. `process` is "" until it registers. `why` is a sentence about the state. `failed` is
    True when an error ended it. `poll_id` and `polled` are the id of its last poll that got tasks, and the ids of the attempts that this
    poll got. `merge_version` is the `MERGE_VERSION` of its program. `application` is the id of its Spark application,
    "" while none is known. `cores` are those that its merges may use, None when unknown. `first_polled_at` is the time of its first poll:
    it registers before its engine runs. `held_seconds` and `idle_seconds` are what it told of its slots (`core.capacity.slot_time`).
    `driver_gc` is what its Spark driver told of garbage collections, None when unknown.

    By its heartbeats a person asks it for another `log_level` and for the stacks of its threads. Each new `stack_request` asks once. Both
    are "" while nobody has asked.
    """

    optimizer_id: str
    group: str
    host: str
    process: str
    version: str
    parallelism: int
    started_at: datetime
    touched_at: datetime
    state: OptimizerState = OptimizerState.RUNNING
    memory_bytes: int = 0
    resource_id: str = ""
    container: str = EXTERNAL
    settings: str = ""
    why: str = ""
    poll_id: str = ""
    polled: tuple[str, ...] = ()
    log_level: str = ""
    stack_request: str = ""
    merge_version: int = MERGE_VERSION
    failed: bool = False
    application: str = ""
    cores: float | None = None
    first_polled_at: datetime | None = None
    held_seconds: float | None = None
    idle_seconds: float | None = None
    driver_gc: DriverGc | None = None

    @property
    def is_managed(self) -> bool:
        """Whether a container started it. The others are left alone: who started them ends them."""
        return self.container != EXTERNAL

    @property
    def never_came(self) -> bool:
        """Whether it was started, and is LOST because it never registered."""
        return self.is_managed and self.state is OptimizerState.LOST and not self.process

    @property
    def ended_at_once(self) -> bool:
        """Whether a container started it, and it failed or fell silent right after its start."""
        is_over = self.failed or self.state is OptimizerState.LOST
        return self.is_managed and is_over and self.touched_at - self.started_at < AT_ONCE


@dataclass(frozen=True, slots=True)
class Registration:
    """What an optimizer says of itself when it registers.

    `Optimizer` says what each part means; `merge_version` is the sender's `MERGE_VERSION`.
    """

    group: str
    host: str
    process: str
    version: str
    merge_version: int
    parallelism: int
    memory_bytes: int = 0
    resource_id: str = ""
    cores: float | None = None


def reserved_memory(told: int, before: Optimizer | None, of_group: int | None) -> int:
    """Return how many bytes of memory an optimizer that registers has reserved, 0 when unknown: teams are charged by it.

    `told` is its own word. `before` is the one whose place it takes: a container that knew how much it asked for is believed, and not the
    process. `of_group` is what an optimizer of its group gets at most; None or 0 when the group does not say.
    """
    if before is not None and before.is_managed and before.memory_bytes > 0:
        return before.memory_bytes
    return min(told, of_group or told)
