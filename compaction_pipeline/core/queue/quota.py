"""How many slots a group has, and how many of them a table is entitled to by its quota. A quota has this one meaning everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta

from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.tables.table import TableIdentifier


def group_slots(optimizers: Iterable[Optimizer], group: str, run_slots: int) -> int:
    """Return how many tasks of a group are merged at a time: the slots of its RUNNING optimizers.

    A group without one has the slots of one run of `compact_job`, which are `run_slots`.
    """
    running = sum(each.parallelism for each in optimizers if each.group == group and each.state is OptimizerState.RUNNING)
    return running or max(1, run_slots)


def entitled_slots(quota: float, slots: int) -> float:
    """Return how many of a group's `slots` a table may use: a share of them for a quota up to 1, and the quota itself above 1."""
    return quota * slots if quota <= 1 else quota


LOOKS_BACK = timedelta(hours=1)
"""The time over which the occupation of a table is measured."""


def turns(used: Mapping[TableIdentifier, float], entitled: Mapping[TableIdentifier, float]) -> list[TableIdentifier]:
    """Return the tables of `entitled` in the order of their turns in a queue with the order QUOTA: the lowest occupation first.

    The occupation of a table is the share of its entitled slots that its attempts have used during `LOOKS_BACK`. `used` has their
    slot-seconds. A table above its quota has its turn too when no other one waits, so no slot idles.
    """
    return sorted(entitled, key=lambda table: (used.get(table, 0.0) / entitled[table], str(table)))
