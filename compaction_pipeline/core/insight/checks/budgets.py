"""Judges what teams use: within their limits, and without optimizers that do next to nothing."""

from __future__ import annotations

from collections.abc import Iterable

from compaction_pipeline.core.capacity.limits import Standing
from compaction_pipeline.core.capacity.low_use_share import MOST_LOW_USE, LowUseShare
from compaction_pipeline.core.insight.checks.judgement import Failure, Judgement
from compaction_pipeline.core.words import part_text


def within_budget(standings: Iterable[Standing] | None) -> Judgement:
    """Fail each team that has used more GB-hours today than it may, or whose attempts take more slots or memory than it may use.

    A team that has reached a limit and not passed it is held, and that is what a limit is for. A task runs to its end, so a team can pass
    its GB-hours, and its other limits after these were lowered.
    """
    if standings is None:
        return _not_judged()
    bounded = [one for one in standings if one.allowed.are_any]
    failures = tuple(Failure(None, None, "; ".join(said), team=one.team.name) for one in bounded if (said := _over(one)))
    held = sum(one.is_held for one in bounded)
    figures = (("held_teams_count", float(held)),)
    return Judgement("teams", len(bounded), failures, "with a limit", "no team has a limit", f"{held} held" if held else "", figures)


def _not_judged() -> Judgement:
    return Judgement("teams", 0, (), "with a limit", "teams are not judged where tables are named", "", ())


def _over(one: Standing) -> list[str]:
    allowed, use = one.allowed, one.use
    found = []
    if allowed.gb_hours is not None and use.gb_hours > allowed.gb_hours:
        found.append(f"it has used {part_text(use.gb_hours, allowed.gb_hours)} GB-hours today (UTC)")
    if allowed.slots is not None and len(use.started) > allowed.slots:
        found.append(f"it uses {len(use.started)} of {allowed.slots} slots")
    if allowed.memory_bytes is not None and use.memory_bytes > allowed.memory_bytes:
        found.append(f"it uses {use.memory_bytes / 10**9:.1f} of {allowed.memory_bytes / 10**9:.1f} GB of memory")
    return found


def low_use_share(shares: Iterable[LowUseShare] | None) -> Judgement:
    """Fail each team of whose optimizer-hours of the last day more than `MOST_LOW_USE` were of low use, the highest share first."""
    if shares is None:
        return _not_judged()
    judged = sorted(shares, key=lambda one: (-one.share, one.team))
    failures = tuple(
        Failure(
            None,
            None,
            f"{one.share:.0%} of its {one.hours:.1f} optimizer-hours of the last day were of low use, and at most {MOST_LOW_USE:.0%} may "
            "be: `compaction-pipeline optimizer use` says which optimizers, and which command uses them better",
            team=one.team,
        )
        for one in judged
        if one.share > MOST_LOW_USE
    )
    highest = round(100 * judged[0].share, 1) if judged else 0.0
    return Judgement("teams", len(judged), failures, "with optimizers", "no optimizer was judged yet", "", (("low_use_percent", highest),))
