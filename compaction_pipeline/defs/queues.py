"""The assets `compaction_queues` and `optimizers`, and the sensor that materializes them and others.

Both are unpartitioned, because Dagster plots only such assets over time. A group is a part of the names of its figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeVar

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.checks.queues import LATELY
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.queue_work import MergedTotals, QueueWork
from compaction_pipeline.core.words import bytes_text, count_text, duration_text
from compaction_pipeline.defs.capacity import capacity_event
from compaction_pipeline.defs.choices import owners_of
from compaction_pipeline.defs.markdown import fitting, plain, wrapped
from compaction_pipeline.defs.metadata import Column, megabytes, table_of, unbroken
from compaction_pipeline.defs.names import GROUP, Names
from compaction_pipeline.defs.partitions import OF_ALL_NODES
from compaction_pipeline.defs.ticks import ticking
from compaction_pipeline.defs.waiting_jobs import waiting_event
from compaction_pipeline.services.insight.read_queues import Queues
from compaction_pipeline.settings import Settings

T = TypeVar("T")

INTERVAL_SECONDS = 60
"""Seconds between two ticks. Each tick that finds a change adds one point to the plots."""

_WAIT_STEP = timedelta(minutes=5)
"""A queue in which nothing happens gets a point when its oldest task has waited for so much longer."""


def compaction_queues(names: Names, settings: Settings) -> dg.AssetSpec:
    """The asset of the groups and their tasks."""
    return dg.AssetSpec(
        names.compaction_queues,
        deps=[dg.AssetDep(names.delta_files, partition_mapping=OF_ALL_NODES)],
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg"},
        description=(
            "The tasks of each group: how many wait and for how long, how many run, wait for a commit or failed, how fast they are "
            "merged, and on how many slots of optimizers. The plots show them over time. `queue_sensor` materializes it when something "
            "has changed.\n\n"
            "When `queue_keeps_up` is red, see that `fragmentation_sensor` is on and that runs of `compact_job` end well, or add "
            "optimizers."
        ),
    )


def optimizers(names: Names, settings: Settings) -> dg.AssetSpec:
    """The asset of the processes that merge for the HTTP service."""
    return dg.AssetSpec(
        names.optimizers,
        deps=[names.compaction_queues],
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg", "pyspark"},
        description=(
            "The optimizers: processes that merge tasks for the HTTP service, those that run first. Without any, runs of `compact_job` "
            "merge. `queue_sensor` materializes it when one comes, ends or changes, or has merged something.\n\n"
            "An optimizer that is LOST was silent for a minute. Its tasks wait again; its own log says what happened to it."
        ),
    )


def _merged_lately(of: Callable[[T], MergedTotals]) -> tuple[Column[T], Column[T]]:
    text = f"tasks that were merged in the last {duration_text(LATELY)}, committed or not"
    return (
        ("merged_lately", "int", text, lambda item: of(item).tasks),
        ("merged_lately_mb", "float", "what these tasks read, in MB", lambda item: megabytes(of(item).size_bytes)),
    )


def queues_metadata(queues: Queues) -> dict[str, dg.MetadataValue]:
    """A table of all groups, and the figures of each group, which Dagster plots over time."""

    def capacity(work: QueueWork) -> int | None:
        group = queues.groups.get(work.queue)
        return group.queue.capacity if group is not None else None

    def order(work: QueueWork) -> str | None:
        group = queues.groups.get(work.queue)
        return group.queue.order.value if group is not None else None

    def merged(work: QueueWork) -> MergedTotals:
        return MergedTotals(work.merged, work.merged_bytes)

    def oldest_wait(work: QueueWork) -> str | None:
        return unbroken(duration_text(_waited(work, queues.at))) if work.pending else None

    columns: tuple[Column[QueueWork], ...] = (
        ("group", "string", "the value of self-optimizing.group", lambda work: work.queue),
        ("waiting", "int", "tasks that a worker may take", lambda work: work.pending),
        ("capacity", "int", "how many tasks may be planned and not yet merged; nothing for a queue whose group does not exist", capacity),
        ("order", "string", "which waiting task is next: fifo, priority or quota", order),
        ("oldest_wait", "string", "how long the first of them has waited", oldest_wait),
        ("running", "int", "tasks that are being merged", lambda work: work.executing),
        ("wait_for_commit", "int", "tasks that are merged, and that no commit has added to its table yet", lambda work: work.prepared),
        ("retrying", "int", "tasks that failed and are tried again", lambda work: work.retrying),
        ("failed", "int", "tasks that failed and are not tried again", lambda work: work.failed),
        ("paused", "int", "tasks of paused tables", lambda work: work.paused),
        (
            "slots",
            "int",
            "tasks that optimizers merge at a time; with 0, runs of compact_job take the tasks",
            lambda work: queues.slots(work.queue),
        ),
        *_merged_lately(merged),
    )
    figures: dict[str, dg.MetadataValue] = {}
    for work in queues.all_works:
        figures |= _figures(work, queues)
    return {
        "queues_now": dg.MetadataValue.md(_said([_in_words(work, queues) for work in queues.all_works])),
        "groups": table_of(queues.all_works, columns),
        **figures,
    }


def _said(texts: Sequence[str]) -> str:
    """As many of these texts as Dagster shows without a button."""
    return fitting(lambda count: "\n\n".join(texts[:count]), range(len(texts), 0, -1)) if texts else "Nothing waits, and no optimizer runs."


def _in_words(work: QueueWork, queues: Queues) -> str:
    """What a person must know of a group, as lines of Markdown. Cells of Dagster's tables are cut off, and lines are not."""
    waited = f", the first for {duration_text(_waited(work, queues.at))}" if work.pending else ""
    pace = f"{count_text(work.merged, 'task')} merged in the last {duration_text(LATELY)}"
    slots = queues.slots(work.queue)
    by = f"optimizers with {count_text(slots, 'slot')} take tasks" if slots else "runs of compact_job take tasks"
    failed = f"; {work.retrying} failed and are tried again" if work.retrying else ""
    waits = (
        f"{count_text(work.pending, 'waiting task')}{waited}" if work.pending else "nothing waits" + " to be merged" * bool(work.prepared)
    )
    merged = f"; {count_text(work.prepared, 'merged task')} waiting for the commit" if work.prepared else ""
    if work.refused_reports:
        failed += f"; {count_text(work.refused_reports, 'report')} refused in the last {duration_text(LATELY)}"
    problem = queues.start_problem(work.queue)
    group = queues.groups.get(work.queue)
    places = "its group does not exist" if group is None else f"{work.taken:,} of {group.queue.capacity:,} places taken"
    text = f"{waits}; {work.executing} running{merged}{failed}; {places}; {pace}; {by}{'; ' * bool(problem)}{problem or ''}"
    return f"**{plain(work.queue)}**\\\n{wrapped(text)}"


def _figures(work: QueueWork, queues: Queues) -> dict[str, dg.MetadataValue]:
    name = work.queue
    return {
        f"{name} waiting_tasks_count": dg.MetadataValue.int(work.pending),
        f"{name} oldest_wait_seconds": dg.MetadataValue.float(round(_waited(work, queues.at).total_seconds(), 1)),
        f"{name} running_tasks_count": dg.MetadataValue.int(work.executing),
        f"{name} retrying_tasks_count": dg.MetadataValue.int(work.retrying),
        f"{name} failed_tasks_count": dg.MetadataValue.int(work.failed),
        f"{name} slots_count": dg.MetadataValue.int(queues.slots(name)),
        **_pace(f"{name} ", work.merged, work.merged_bytes),
    }


def _pace(name: str, tasks: int, size_bytes: int) -> dict[str, dg.MetadataValue]:
    """What was merged a minute, on average over the time `LATELY`. A plot of running tasks would miss merges between two points."""
    minutes = LATELY.total_seconds() / 60
    return {
        f"{name}merged_tasks_per_minute": dg.MetadataValue.float(round(tasks / minutes, 2)),
        f"{name}merged_mb_per_minute": dg.MetadataValue.float(round(megabytes(size_bytes) / minutes, 3)),
    }


def optimizers_metadata(queues: Queues) -> dict[str, dg.MetadataValue]:
    """A table of the optimizers, those that take tasks first, and figures of all of them."""
    serving = queues.serving
    lately = [_merged(one, queues) for one in queues.optimizers]
    others = [optimizer for optimizer in queues.optimizers if optimizer not in serving]

    def merged(one: Optimizer) -> MergedTotals:
        return _merged(one, queues)

    def running(one: Optimizer) -> int:
        return queues.running.get(one.optimizer_id, 0)

    columns: tuple[Column[Optimizer], ...] = (
        ("optimizer", "string", "id of the optimizer, which its tasks name as their owner", lambda one: one.optimizer_id),
        ("group", "string", "the group whose tasks it takes", lambda one: one.group),
        ("state", "string", "STARTING, RUNNING, DRAINING, LOST or ENDED", lambda one: one.state.value),
        ("slots", "int", "tasks that it merges at a time", lambda one: one.parallelism),
        ("running", "int", "tasks that it merges at the moment of this materialization; short ones end between two of them", running),
        *_merged_lately(merged),
        ("container", "string", "what started it; external means a person", lambda one: unbroken(one.container)),
        (
            "host",
            "string",
            "host, and the resource id or the process",
            lambda one: unbroken(f"{one.host}, {one.resource_id or one.process}"),
        ),
        ("application", "string", "id of its Spark application, as it says", lambda one: unbroken(one.application)),
        ("since", "string", "when it registered, in UTC", lambda one: unbroken(f"{one.started_at:%Y-%m-%d %H:%M:%S}")),
        ("why", "string", "why it is in this state", lambda one: unbroken(one.why)),
    )
    return {
        "optimizers_now": dg.MetadataValue.md(_said([_optimizer_in_words(one, queues) for one in (*serving, *others)])),
        "optimizers": table_of((*serving, *others), columns),
        "serving_optimizers_count": dg.MetadataValue.int(len(serving)),
        "slots_count": dg.MetadataValue.int(sum(optimizer.parallelism for optimizer in serving)),
        "running_tasks_count": dg.MetadataValue.int(sum(map(running, queues.optimizers))),
        **_pace("", sum(merged.tasks for merged in lately), sum(merged.size_bytes for merged in lately)),
    }


def _optimizer_in_words(optimizer: Optimizer, queues: Queues) -> str:
    running = queues.running.get(optimizer.optimizer_id, 0)
    where = f"{optimizer.host}, {optimizer.resource_id or f'process {optimizer.process}'}"
    lately = _merged(optimizer, queues)
    merged = f"merged {count_text(lately.tasks, 'task')} ({bytes_text(lately.size_bytes)}) in the last {duration_text(LATELY)}"
    merges = f"{merged}; now merges {count_text(running, 'task')} on {count_text(optimizer.parallelism, 'slot')}"
    doing = merges if optimizer.state.is_heard else optimizer.why
    text = f"{optimizer.state.value}: {doing}; group {optimizer.group}, {where}"
    return f"**{plain(optimizer.optimizer_id)}**\\\n{wrapped(text)}"


def _merged(optimizer: Optimizer, queues: Queues) -> MergedTotals:
    return queues.merged.get(optimizer.optimizer_id, MergedTotals())


def queue_sensor(names: Names) -> dg.SensorDefinition:
    """The sensor `queue_sensor`."""
    return ticking(
        names,
        "queue_sensor",
        _queue_tick,
        events_of=[names.compaction_queues, names.optimizers, names.waiting_jobs, names.compaction_capacity],
        every=INTERVAL_SECONDS,
        description="Materializes `compaction_queues`, `optimizers`, `waiting_jobs` and `compaction_capacity` when something about them "
        "has changed. It starts no run.",
    )


def _queue_tick(names: Names, context: dg.SensorEvaluationContext, services: Services) -> dg.SensorResult:
    queues = services.read_queues.queues()
    before = json.loads(context.cursor or "{}")
    now = {"queues": _fingerprint(_queue_state(queues)), "optimizers": _fingerprint(_optimizer_state(queues))}
    events = []
    if before.get("queues") != now["queues"]:
        events.append(dg.AssetMaterialization(names.compaction_queues, metadata=queues_metadata(queues)))
    if queues.optimizers and before.get("optimizers") != now["optimizers"]:
        events.append(dg.AssetMaterialization(names.optimizers, metadata=optimizers_metadata(queues)))
    for part, made in (("jobs", waiting_event(names, services)), ("capacity", capacity_event(names, services))):
        if made is not None:
            event, state = made
            now[part] = _fingerprint(state)
            if before.get(part) != now[part]:
                events.append(event)
    waiting = count_text(sum(work.pending for work in queues.works), "waiting task")
    text = f"{waiting} in {count_text(len(queues.all_works), 'group')}, {count_text(len(queues.serving), 'serving optimizer')}"
    return dg.SensorResult(skip_reason=text, cursor=json.dumps(now), asset_events=events)


def _queue_state(queues: Queues) -> Sequence[object]:
    def state(work: QueueWork) -> Sequence[object]:
        group = queues.groups.get(work.queue)
        waited = _waited(work, queues.at) // _WAIT_STEP
        return (work, group and group.queue, queues.slots(work.queue), waited, queues.start_problem(work.queue))

    return [state(work) for work in queues.all_works]


def _waited(work: QueueWork, at: datetime) -> timedelta:
    return max(at - work.waiting_since, timedelta(0)) if work.waiting_since is not None else timedelta(0)


def _optimizer_state(queues: Queues) -> Sequence[object]:
    def state(one: Optimizer) -> Sequence[object]:
        running = queues.running.get(one.optimizer_id, 0)
        return (one.optimizer_id, one.state, one in queues.serving, one.application, running, _merged(one, queues))

    return [state(one) for one in queues.optimizers]


def _fingerprint(state: Sequence[object]) -> str:
    """16 hex digits, which differ when the page would show something else. Small changes of waiting times do not count."""
    return sha256(repr(state).encode()).hexdigest()[:16]
