"""The asset `compaction_capacity`: what compaction has cost today, who may use how much, and how well optimizers are used.

`queue_sensor` materializes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.capacity.costs import CostKey, CostSum
from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.words import bytes_text, count_text, duration_text, time_text
from compaction_pipeline.defs.choices import owners_of
from compaction_pipeline.defs.markdown import fitting, plain, wrapped
from compaction_pipeline.defs.metadata import Column, table_of, unbroken
from compaction_pipeline.defs.names import GROUP, Names
from compaction_pipeline.services.capacity.read_scaling import GroupScaling, ScalingAction
from compaction_pipeline.services.capacity.read_use import OptimizerUse
from compaction_pipeline.settings import Settings

_SHOWN = 20


def compaction_capacity(names: Names, settings: Settings) -> dg.AssetSpec:
    """The asset of costs, teams and the use of optimizers."""
    return dg.AssetSpec(
        names.compaction_capacity,
        deps=[names.optimizers],
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"iceberg"},
        description=(
            "What compaction has cost today (UTC), by table and by team, what teams use of their limits, which optimizers are badly used, "
            "with the command that mends it, and how groups were scaled. The plots show slot-hours, CPU-hours and GB-hours of the day so "
            "far, and what part of the optimizers is badly used. `queue_sensor` materializes it when something has changed.\n\n"
            "`compaction-pipeline cost`, `team list`, `group scaling` and `optimizer use` show the same."
        ),
    )


def capacity_event(names: Names, services: Services) -> tuple[dg.AssetMaterialization, Sequence[object]] | None:
    """What to tell, and of what it is made; None while nothing was merged today, no optimizer runs and no team has a limit."""
    today = services.read_costs.costs(CostKey.TABLE, 1)
    costs = today.costs
    uses = services.read_use.uses()
    teams = [one for one in services.manage_teams.standings() if _is_bounded(one)]
    scaled = services.read_scaling.groups()
    if not (costs or uses or teams or scaled):
        return None
    seconds, cpu = sum(one.slot_seconds for one in costs), sum(one.cpu_seconds or 0.0 for one in costs)
    in_vain = seconds - sum(one.merged_slot_seconds for one in costs)
    judged = [one.use for one in uses if one.use is not None]
    said = [
        *(_team_in_words(one) for one in teams),
        *(_scaling_in_words(one) for one in scaled),
        *(_use_in_words(one) for one in uses if one.use is not None and (one.use.reasons or one.driver_memory)),
    ]
    metadata: dict[str, dg.MetadataValue] = {
        "capacity_now": dg.MetadataValue.md(_said(said)),
        "costs_today": table_of(costs[:_SHOWN], _costs_by("table", "the table whose tasks were attempted")),
        "costs_of_teams_today": table_of(
            services.read_costs.costs(CostKey.TEAM, 1).costs[:_SHOWN], _costs_by("team", "the team that pays for the table")
        ),
        "teams": table_of(teams, _TEAMS),
        "slot_hours_today": _number(seconds / 3600, 4),
        "slot_hours_in_vain_today": _number(in_vain / 3600, 4),
        "cpu_hours_today": _number(cpu / 3600, 4),
        "own_work_hours_today": _number(sum(one.seconds for one in today.own) / 3600, 4),
        "gb_hours_today": _number(sum(one.gb_hours or 0.0 for one in costs), 4),
        "scaling": table_of([each for group in scaled for each in group.actions][:_SHOWN], _SCALING),
        "wanted_slots_count": dg.MetadataValue.int(sum(group.target.slots for group in scaled if group.target is not None)),
        "held_teams_count": dg.MetadataValue.int(sum(one.is_held for one in teams)),
    }
    if judged:
        metadata["low_use_percent"] = _number(100 * sum(one.is_low for one in judged) / len(judged), 1)
    actions = [(each.record.record_id, each.record.outcome) for group in scaled for each in group.actions]
    state = ([(one.key, one.attempts, one.provisional) for one in costs], said, [one.is_held for one in teams], actions)
    return dg.AssetMaterialization(names.compaction_capacity, metadata=metadata), state


def _number(value: float, digits: int) -> dg.MetadataValue:
    # The sum of nothing is an int, which Dagster takes for another kind of figure.
    return dg.MetadataValue.float(round(float(value), digits))


def _is_bounded(one: Standing) -> bool:
    limits = one.team.limits
    return any(limit is not None for limit in (limits.slots, limits.memory_bytes, limits.gb_hours))


def _said(texts: Sequence[str]) -> str:
    """As many of these texts as Dagster shows without a button."""
    none = "No team has a limit, and no optimizer is badly used."
    return fitting(lambda count: "\n\n".join(texts[:count]), range(len(texts), 0, -1)) if texts else none


def _team_in_words(one: Standing) -> str:
    text = one.why_held or f"it may begin more: it uses {count_text(len(one.use.started), 'slot')}"
    return f"**team {plain(one.team.name)}**\\\n{wrapped(text)}"


def _use_in_words(one: OptimizerUse) -> str:
    assert one.use is not None
    collected = [f"{one.driver_gc_share:.0%} of its driver's time is garbage collection"] if one.driver_memory else []
    proposed = f": {one.use.remedy}" if one.use.remedy else ""
    command = f"; run {one.command}" if one.command else ""
    why = "; ".join([*one.use.reasons, *collected])
    return f"**{plain(one.optimizer_id)}**\\\n{wrapped(f'score {one.use.score}: {why}{proposed}{command}')}"


def _scaling_in_words(one: GroupScaling) -> str:
    text = one.problem or (f"it is to have {one.target.in_words}; {one.now}" if one.target is not None else one.now)
    return f"**group {plain(one.group)}**\\\n{wrapped(text)}"


def _hours(seconds: float) -> str:
    return unbroken(duration_text(timedelta(seconds=max(seconds, 0.0))))


def _in_vain(one: CostSum) -> str:
    return _hours(one.slot_seconds - one.merged_slot_seconds)


def _read(one: CostSum) -> str | None:
    return None if one.bytes_read is None else unbroken(bytes_text(one.bytes_read))


def _costs_by(name: str, meaning: str) -> Sequence[Column[CostSum]]:
    """The columns of costs. The first one has this name, and says whose costs they are."""
    return ((name, "string", meaning, lambda one: unbroken(one.key)), *_FIGURES)


_FIGURES: tuple[Column[CostSum], ...] = (
    ("attempts", "int", "attempts that ended today", lambda one: one.attempts),
    ("slot_time", "string", "how long they held a slot", lambda one: _hours(one.slot_seconds)),
    (
        "in_vain",
        "string",
        "the part of attempts that did not merge their task",
        _in_vain,
    ),
    ("cpu", "string", "CPU in Python, as far as workers told it", lambda one: None if one.cpu_seconds is None else _hours(one.cpu_seconds)),
    ("gb_hours", "float", "reserved memory over time", lambda one: None if one.gb_hours is None else round(one.gb_hours, 4)),
    (
        "read",
        "string",
        "bytes of the files that were read",
        _read,
    ),
)
_SCALING: tuple[Column[ScalingAction], ...] = (
    ("at", "string", "when the action was decided (UTC)", lambda one: unbroken(time_text(one.record.at))),
    ("group", "string", "the group that is scaled", lambda one: unbroken(one.record.group)),
    ("why", "string", "what called for it", lambda one: unbroken(one.record.action.trigger)),
    ("before", "string", "what the group had", lambda one: unbroken(one.record.action.before.in_words)),
    ("after", "string", "what it was to have", lambda one: unbroken(one.record.action.after.in_words)),
    ("outcome", "string", "how the action ended", lambda one: unbroken(one.record.outcome.value if one.record.outcome else "goes on")),
    ("reason", "string", "why it ended so", lambda one: unbroken(one.record.why)),
)
_TEAMS: tuple[Column[Standing], ...] = (
    ("team", "string", "a team with a limit", lambda one: unbroken(one.team.name)),
    ("slots", "int", "tasks of its tables that run", lambda one: len(one.use.started)),
    ("most_slots", "int", "how many may run at a time, with loans", lambda one: one.allowed.slots),
    ("gb_hours_today", "float", "GB-hours that it has used today", lambda one: round(one.use.gb_hours, 4)),
    ("most_gb_hours", "float", "how many it may use a day, with loans", lambda one: one.allowed.gb_hours),
    ("held", "string", "why nothing more of it begins", lambda one: unbroken(one.why_held or "")),
)
