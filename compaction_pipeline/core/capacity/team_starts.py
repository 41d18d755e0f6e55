"""Decides how many more optimizers may be started in the groups of a team, and why not more.

A group may name a team in its property `team`. Then the reserves of its optimizers count against the limits of this team from the moment
when they are asked for until they have ended, whether they are in use or idle. What the team's tasks use on optimizers of other groups, and
in runs, counts beside. A group that names no team is never refused a start here.
"""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.capacity.limits import NOTHING, Reserve, Standing
from compaction_pipeline.core.capacity.team import Limits
from compaction_pipeline.core.words import bytes_text, count_text, part_text


def needs_memory(limits: Limits) -> bool:
    """Whether the optimizers of a team must say how much memory they have: memory and GB-hours cannot be counted without it."""
    return limits.memory_bytes is not None or limits.gb_hours is not None


def starts_for_team(standing: Standing, own: Mapping[str, Reserve], each: Reserve, wanted: int) -> tuple[int, str]:
    """Return how many of `wanted` more optimizers may be started, and why not all; "" when all may be.

    `own` has the reserve of each live optimizer in the groups of the team, by its id, and `each` is that of a new one.
    """
    name, allowed = standing.team.name, standing.allowed
    if allowed.gb_hours is not None and standing.use.gb_hours >= allowed.gb_hours:
        return 0, f"{_refused(name)} it has used {part_text(standing.use.gb_hours, allowed.gb_hours)} GB-hours today (UTC)"
    if needs_memory(allowed) and not each.memory_bytes:
        return 0, (
            f"{_refused(name)} it has a limit of memory or GB-hours, and nobody knows how much memory an optimizer of the group reserves: "
            "set the property 'memory' of the group"
        )
    elsewhere = [reserve for owner, reserve in standing.use.by_owner.items() if owner not in own]
    taken = sum([*own.values(), *elsewhere], NOTHING)
    may, why = wanted, ""
    for limit, used, size, unit in (
        (allowed.slots, taken.slots, each.slots, _slots),
        (allowed.memory_bytes, taken.memory_bytes, each.memory_bytes, _memory),
    ):
        if limit is not None and size and max(0, limit - used) // size < may:
            may = max(0, limit - used) // size
            why = (
                f"{_refused(name)} it may use {unit(limit)}, its optimizers and what its tasks use elsewhere take {unit(used)}, and "
                f"another optimizer needs {unit(size)}"
            )
    return may, why


def _slots(count: int) -> str:
    return count_text(count, "slot")


def _memory(size: int) -> str:
    return f"{bytes_text(size)} of memory"


def _refused(team: str) -> str:
    return f"no more optimizers are started for team {team}:"
