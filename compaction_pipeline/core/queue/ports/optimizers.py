"""What the state database remembers of optimizers, and of the processes that watch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.watchers import Watcher, WatcherKind


class OptimizerStore(Protocol):
    """The registered optimizers."""

    def add(self, optimizer: Optimizer) -> None:
        """Store a new optimizer. Raises NotFoundError when its group does not exist."""

    def begin(self, optimizer: Optimizer, most: int) -> bool:
        """Store a STARTING optimizer, unless its group has `most` STARTING and RUNNING ones of containers. Return whether it was stored.

        Raises NotFoundError when its group does not exist.
        """

    def register(self, optimizer: Optimizer) -> Optimizer:
        """Store an optimizer that registers, and return it as it is stored.

        When a STARTING one of its group has its resource id, this one becomes RUNNING, and keeps its id, container and settings. When
        another one of its group has it, the process was taken for lost: it gets a row of its own, with the same container and settings.
        It is DRAINING then if nobody had heard of the process before, because it was given up, and another one may have its place.
        Raises NotFoundError when its group does not exist.
        """

    def optimizer(self, optimizer_id: str) -> Optimizer | None:
        """Return an optimizer; None when none has this id."""

    def optimizers(self, *, live: bool = False) -> Sequence[Optimizer]:
        """Return all optimizers, or those that are live, the oldest first."""

    def touch(
        self, optimizer_id: str, now: datetime, told: SlotTotals | None = None, driver_gc: DriverGc | None = None
    ) -> Optimizer | None:
        """Note that a registered optimizer is there, and return it. Return None when it is neither RUNNING nor DRAINING, or not known.

        `told` is what it says of its slots. What they did since the last touch is added to the ledger. None adds nothing.
        `driver_gc` has the totals of its Spark driver (`core.capacity.driver_gc.observed`).
        """

    def note_first_poll(self, optimizer_id: str, now: datetime) -> None:
        """Note that an optimizer has polled, unless that is noted already."""

    def note_application(self, optimizer_id: str, application: str) -> None:
        """Note the Spark application of an optimizer. Attempts that it holds and that know of none get it too."""

    def note_poll(self, optimizer_id: str, poll_id: str, attempts: Sequence[str]) -> None:
        """Note which attempts the last poll of an optimizer got."""

    def move(self, optimizer_id: str, states: Sequence[OptimizerState], to: OptimizerState, why: str, *, failed: bool = False) -> bool:
        """Set the state of an optimizer that is in one of `states`. Return False when it is in none of them, or not known.

        `failed` says that an error ended it.
        """

    def ask(self, optimizer_id: str, *, log_level: str | None = None, stack_request: str | None = None) -> bool:
        """Note what a registered optimizer is asked for; None leaves a request as it is.

        Return False when it is neither RUNNING nor DRAINING, or not known.
        """

    def lose_silent(self, touched_before: datetime, why: str) -> Sequence[str]:
        """Set the registered optimizers that were last heard of at this time or before to LOST, and return their ids."""

    def expire(self, before: datetime) -> int:
        """Remove the optimizers that are no longer live and were last heard of before this time. Return how many they were."""


class WatcherStore(Protocol):
    """The servers and keepers that note that they are there."""

    def renew(self, name: str, kind: WatcherKind, now: datetime, gap: timedelta) -> None:
        """Note that a watcher is there. Its time `since` begins now when it is new, or when it noted nothing for longer than `gap`.

        A new one also makes the store forget the watchers that were silent for `FORGOTTEN_AFTER`.
        """

    def watchers(self) -> Sequence[Watcher]:
        """Return all watchers that are remembered, sorted by name."""
