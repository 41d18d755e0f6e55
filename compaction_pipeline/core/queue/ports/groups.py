"""What the state database remembers of resource groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compaction_pipeline.core.queue.group import GroupHolders, ResourceGroup


class GroupStore(Protocol):
    """The resource groups. The default group is there from the beginning, and stays."""

    def groups(self) -> Sequence[ResourceGroup]:
        """Return all groups, sorted by name."""

    def group(self, name: str) -> ResourceGroup | None:
        """Return a group; None when none has this name."""

    def add(self, group: ResourceGroup) -> bool:
        """Store a new group. Return False and change nothing when the name is taken."""

    def change(self, group: ResourceGroup, before: ResourceGroup | None = None) -> bool:
        """Replace the stored group of this name. Return False when none has it, or when it is no longer as `before` says."""

    def hold(self, name: str, why: str) -> None:
        """Note why the container of a group is not asked for more optimizers; "" when it is. `change` leaves this as it is."""

    def remove(self, name: str) -> GroupHolders:
        """Remove a group, unless it has open tasks or live optimizers, and return these. Nothing happens when none has this name."""
