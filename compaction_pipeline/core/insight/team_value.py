"""Shows teams as programs read them: in the answers of commands and of the HTTP service."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.capacity.limits import Standing


def team_value(standing: Standing, lifts: Sequence[str] = ()) -> dict[str, object]:
    """Return the JSON value of a team: its own limits, what it may use now with its loans, what it uses, and why it is held.

    A limit that is not set is null. `held`, `whitelisted_until` and `lifts` are there only when there is something to say. `lifts` are the
    limits and owners that it has lost just now, in words.
    """
    limits, allowed, use = standing.team.limits, standing.allowed, standing.use
    value: dict[str, object] = {
        "team": standing.team.name,
        "owners": list(standing.team.owners),
        "limits": {"slots": limits.slots, "memory_bytes": limits.memory_bytes, "gb_hours": limits.gb_hours},
        "allowed": {"slots": allowed.slots, "memory_bytes": allowed.memory_bytes, "gb_hours": allowed.gb_hours},
        "used": {"slots": len(use.started), "memory_bytes": use.memory_bytes, "gb_hours": round(use.gb_hours, 3)},
    }
    exempt = standing.exempt
    until = exempt.until if exempt is not None else None
    notes = {"held": standing.why_held, "whitelisted_until": until, "lifts": list(lifts) or None}
    return {**value, **{key: said for key, said in notes.items() if said is not None}}
