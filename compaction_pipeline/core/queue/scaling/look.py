"""Says what is seen of a group in a minute, from its queue, its optimizers, and what their attempts used.

Attempts tell their CPU and memory when they end. So what a slot uses is that of the attempts of the last half hour, and how many slots were
busy is that of the last minute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.capacity.low_use import Size, SlotUse, memory_share
from compaction_pipeline.core.capacity.scaling.observation import EVERY, Observation
from compaction_pipeline.core.queue.instances import REGISTERS_WITHIN
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.queue_work import QueueWork, takes_tasks
from compaction_pipeline.core.queue.scaling.steps import KILLED_WITHIN, is_killed_for_memory

USED_FOR = timedelta(minutes=30)
"""What an attempt uses is measured by those that ended in this time."""


@dataclass(frozen=True, slots=True)
class Used:
    """What the slots of each optimizer did in the last minute, and in the last `USED_FOR`, by its id. `ended` counts attempts by queue.

    `killed` are the ids of optimizers whose kill for memory was seen at an earlier look.
    """

    minute: Mapping[str, SlotUse]
    lately: Mapping[str, SlotUse]
    ended: Mapping[str, int]
    killed: Collection[str] = ()


def look(group: str, optimizers: Sequence[Optimizer], work: QueueWork, used: Used, now: datetime) -> Observation:
    """Return what is seen of a group now. `optimizers` are those of all groups, because several share a host."""
    mine = [each for each in optimizers if each.group == group]
    up = [each for each in mine if each.first_polled_at is not None and takes_tasks(each, now)]
    slots = sum(each.parallelism for each in up)
    busy = sum(_busy(each, used) for each in up)
    cores = _attempt_cores(up, used)
    own = sum(each.cores or 0.0 for each in up)
    peaks = [
        share
        for each in up
        if (share := memory_share(Size(each.parallelism, each.memory_bytes, each.cores), used.lately.get(each.optimizer_id, SlotUse())))
    ]
    return Observation(
        now,
        work.pending,
        timedelta(0) if work.waiting_since is None else max(timedelta(0), now - work.waiting_since),
        work.executing,
        slots,
        idle_share=min(max(1 - busy / slots, 0.0), 1.0) if slots else None,
        ended=used.ended.get(group, 0),
        cpu_share=None if cores is None or not own or any(each.cores is None for each in up) else busy * cores / own,
        attempt_cores=cores,
        host_cpu_share=_busiest_host(up, optimizers, used),
        memory_share=max(peaks, default=None),
        memory_kills=sum(was_killed_lately(each, now) and each.optimizer_id not in used.killed for each in mine),
        up=len(up),
        starting=sum(each.state is OptimizerState.STARTING or _is_fresh(each, now) for each in mine),
        draining=sum(each.state is OptimizerState.DRAINING for each in mine),
    )


def was_killed_lately(each: Optimizer, now: datetime) -> bool:
    """Whether the container said that an optimizer was killed for memory. It says so a while after the last that was heard of it."""
    return is_killed_for_memory(each) and now - each.touched_at <= KILLED_WITHIN


def _is_fresh(each: Optimizer, now: datetime) -> bool:
    """Whether it has registered, and its engine may still start. One that never polls must not hold up others for ever."""
    return each.state is OptimizerState.RUNNING and each.first_polled_at is None and now - each.started_at < 2 * REGISTERS_WITHIN


def _busy(each: Optimizer, used: Used) -> float:
    """How many slots of an optimizer were busy on average in the last minute."""
    return used.minute.get(each.optimizer_id, SlotUse()).busy_seconds / EVERY.total_seconds()


def _attempt_cores(optimizers: Sequence[Optimizer], used: Used) -> float | None:
    """The cores that an attempt of these used on average; None when none has told it."""
    known = [used.lately[each.optimizer_id] for each in optimizers if each.optimizer_id in used.lately]
    told = sum(each.told_seconds for each in known)
    return sum(each.cpu_seconds for each in known) / told if told > 0 else None


def _busiest_host(up: Sequence[Optimizer], optimizers: Sequence[Optimizer], used: Used) -> float | None:
    """The highest use of a host's cores, by the optimizers of all groups on it. None when nobody knows it of one of the hosts."""
    by_host: dict[str, list[Optimizer]] = defaultdict(list)
    for each in optimizers:
        if each.state.is_heard:
            by_host[each.host].append(each)
    shares = []
    for host in {each.host for each in up}:
        there = by_host[host]
        cores = max((each.cores or 0.0 for each in there), default=0.0)
        each_used = [(_busy(each, used), _attempt_cores([each], used)) for each in there]
        if not cores or any(busy > 0 and of is None for busy, of in each_used):
            return None
        shares.append(min(1.0, sum(busy * (of or 0.0) for busy, of in each_used) / cores))
    return max(shares, default=None)
