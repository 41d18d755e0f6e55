"""How many slots a group has, and how many of them a table is entitled to by its quota. A quota has this one meaning everywhere."""

from __future__ import annotations

from collections.abc import Iterable

from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState


def group_slots(optimizers: Iterable[Optimizer], group: str, run_slots: int) -> int:
    """Return how many tasks of a group are merged at a time: the slots of its RUNNING optimizers.

    A group without one has the slots of one run of `compact_job`, which are `run_slots`.
    """
    running = sum(each.parallelism for each in optimizers if each.group == group and each.state is OptimizerState.RUNNING)
    return running or max(1, run_slots)


def entitled_slots(quota: float, slots: int) -> float:
    """Return how many of a group's `slots` a table may use: a share of them for a quota up to 1, and the quota itself above 1."""
    return quota * slots if quota <= 1 else quota
