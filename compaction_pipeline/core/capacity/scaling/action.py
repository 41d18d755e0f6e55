"""An action changes a group's target in one direction. A hold says why nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.capacity.scaling.target import Target


class ActionKind(str, Enum):
    """What an action changes. The order is that of precedence. OPTIMIZERS starts or drains some; the others replace each of them."""

    MEMORY = "memory"
    PARALLELISM = "parallelism"
    CORES = "cores"
    OPTIMIZERS = "optimizers"


class Direction(str, Enum):
    """OUT gives a group more, IN gives it less."""

    OUT = "out"
    IN = "in"

    @property
    def opposite(self) -> Direction:
        """The other one."""
        return Direction.IN if self is Direction.OUT else Direction.OUT


class Outcome(str, Enum):
    """How an action ended.

    DONE: the new configuration works. PARTIAL: its window ended, or more capacity was needed, before every optimizer was replaced; the last
    good configuration stays the old one. FAILED: the new configuration did not work, and the group was rolled back. CANCELED: a person's
    change, a lost optimizer or a disabled policy ended it.
    """

    DONE = "DONE"
    PARTIAL = "PARTIAL"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


@dataclass(frozen=True, slots=True)
class Action:
    """A change of a group's target. `trigger` says with figures why. `is_for_bounds` says that no load asked for it: the bounds that hold
    now, those of a window or of the policy, do not allow what the group has."""

    kind: ActionKind
    direction: Direction
    before: Target
    after: Target
    trigger: str
    is_for_bounds: bool = False


@dataclass(frozen=True, slots=True)
class Hold:
    """Why nothing is changed now, in words with figures."""

    reason: str


@dataclass(frozen=True, slots=True)
class PastAction:
    """An action that was decided `at`, under the policy of this digest. `outcome` and `closed_at` are None while it is open.

    Those of the last three days are enough to decide by.
    """

    action: Action
    at: datetime
    policy: str
    outcome: Outcome | None = None
    closed_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.outcome is None
