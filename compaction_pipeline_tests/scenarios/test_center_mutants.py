"""What the oracle test of the dependency center must notice: each of these mistakes, put into the center, makes it fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import false, true, update

from compaction_pipeline.core.dependencies.center import inbox, jobs, periods, strength
from compaction_pipeline.core.dependencies.center.periods import BusinessTime, Calendar
from compaction_pipeline.services.dependencies import center as doors
from compaction_pipeline.services.dependencies import lead_center
from compaction_pipeline.storage import center, center_groups, center_leader, center_spread, schema
from compaction_pipeline.storage.engine import writing
from compaction_pipeline_tests.scenarios.center_world import run_on_sqlite

Patch = pytest.MonkeyPatch
WORLDS = 100


def offset(by: int) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        real = jobs.upstream_times

        def shifted(offsets: Any, down: Calendar, up: Calendar, time: BusinessTime) -> tuple[BusinessTime, ...]:
            moved = (up.shift(one, by) for one in real(offsets, down, up, time))
            return tuple(one for one in moved if one is not None)

        patch.setattr(jobs, "upstream_times", shifted)

    return mutate


def days_by_instant(patch: Patch) -> None:
    real = periods._day_opens
    patch.setattr(periods, "_day_opens", lambda zone, day: real("UTC", day))


def no_withdrawal(patch: Patch) -> None:
    patch.setattr(center_spread, "_take_back", lambda *given: None)


def counter_off_by_one(patch: Patch) -> None:
    real = center.set_missing
    patch.setattr(center, "set_missing", lambda connection, missing: real(connection, {one: max(n - 1, 0) for one, n in missing.items()}))


def counter_counts_instances(patch: Patch) -> None:
    """A subject that an instance needs twice is counted once."""
    real = center_spread._change_missing
    patch.setattr(center_spread, "_change_missing", lambda connection, counts, by: real(connection, type(counts)(list(counts)), by))


def claim_notes_nothing(patch: Patch) -> None:
    real = center.CenterDoors.claim

    def claim(self: Any, *given: Any) -> Any:
        claimed = real(self, *given)
        with writing(self._engine) as connection:
            table = schema.center_instance
            connection.execute(update(table).where(table.c.id.in_([one.id for one in claimed])).values(claimed_at=None))
        return claimed

    patch.setattr(center.CenterDoors, "claim", claim)


def _build_anew(patch: Patch) -> None:
    """Let statements be built at each use, so that they have what a mutant changed, and no test after it has."""
    for module in (center, center_leader, center_spread):
        for name, value in vars(module).items():
            if callable(getattr(value, "cache_clear", None)) and hasattr(value, "__wrapped__"):
                patch.setattr(module, name, value.__wrapped__)


def release_asks_counters_alone(patch: Patch) -> None:
    for module in (center_leader, center_spread):
        patch.setattr(module, "has_all", true)
    _build_anew(patch)


def another_origin_is_not_asked(patch: Patch) -> None:
    for module in (center_leader, center_spread):
        patch.setattr(module, "has_beside", lambda states: false())
    _build_anew(patch)


def claim_asks_nothing(patch: Patch) -> None:
    patch.setattr(center, "has_all", true)
    _build_anew(patch)


def old_generations_count(patch: Patch) -> None:
    real = inbox.after_report
    patch.setattr(inbox, "after_report", lambda before, report: real(before, replace(report, generation=_higher(before, report))))


def _higher(before: Any, report: Any) -> int | None:
    return None if report.generation is None else max(before.generation, report.generation)


def numbers_do_not_count(patch: Patch) -> None:
    real = center_leader.apply
    patch.setattr(center_leader, "apply", lambda facts, known: real([replace(fact, number=None) for fact in facts], known))


def no_fencing(patch: Patch) -> None:
    patch.setattr(center_leader, "_leads", lambda connection, leader: True)


def since_is_ignored(patch: Patch) -> None:
    real = lead_center.requirements

    def requirements(job: Any, time: Any, by_name: Mapping[str, Any], *more: Any) -> Any:
        early = {name: replace(one, since=BusinessTime(one.calendar.period, -(10**6))) for name, one in by_name.items()}
        return real(job, time, early, *more)

    patch.setattr(lead_center, "requirements", requirements)


def backfills_are_seen(patch: Patch) -> None:
    """What a backfill made counts for scheduled runs."""
    real = jobs.run_subject
    for module in (inbox, center, center_leader, center_spread):
        patch.setattr(module, "run_subject", lambda job, biz, origin="", part="": real(job, biz, "", part))


def backfills_see_scheduled_runs_alone(patch: Patch) -> None:
    patch.setattr(doors, "made_of", lambda job, biz, origin, known, at, *more: lead_center.made_of(job, biz, origin, known, at))


def nothing_is_taken_back_after_claim(patch: Patch) -> None:
    patch.setattr(center_spread, "_used", lambda *given: ([], []))


def made_without_a_look(patch: Patch) -> None:
    """An instance does not see what was there when it was made."""
    real = center._subjects
    patch.setattr(center, "_subjects", lambda connection, keys: {key: (number, 0) for key, (number, _) in real(connection, keys).items()})


def changed_groups(change: Callable[[strength.Group], strength.Group]) -> Callable[[Patch], None]:
    """Groups that are made with another rule."""

    def mutate(patch: Patch) -> None:
        real = lead_center.groups
        patch.setattr(lead_center, "groups", lambda *given: tuple(change(one) for one in real(*given)))

    return mutate


def any_means_all(patch: Patch) -> None:
    changed_groups(lambda one: replace(one, strength=strength.Strength.ALL) if one.strength is strength.Strength.ANY else one)(patch)


def newest_means_any(patch: Patch) -> None:
    changed_groups(lambda one: replace(one, strength=strength.Strength.ANY) if one.strength is strength.Strength.NEWEST else one)(patch)


def until_comes_early(patch: Patch) -> None:
    changed_groups(lambda one: replace(one, until_at=one.until_at and one.until_at - timedelta(hours=1)))(patch)


def until_passes_over_what_failed(patch: Patch) -> None:
    changed_groups(lambda one: replace(one, waits_for_failed=False))(patch)


def nobody_looks_again(patch: Patch) -> None:
    patch.setattr(center_leader.SqlCenterStore, "look_again", lambda self, leader, most: 0)


def failures_are_not_told(patch: Patch) -> None:
    patch.setattr(center_spread, "_tell_of_failed", lambda *given: None)


def newest_is_chosen_once(patch: Patch) -> None:
    real = strength.next_look
    for module in (center_groups, center_spread):
        patch.setattr(module, "next_look", lambda group, rows, at: real(replace(group, strength=strength.Strength.ALL), rows, at))


def nothing_is_noted(patch: Patch) -> None:
    patch.setattr(center_leader, "note_of", lambda passed: None)


MUTANTS: Sequence[Callable[[Patch], None]] = (
    offset(1),
    offset(-1),
    days_by_instant,
    no_withdrawal,
    counter_off_by_one,
    counter_counts_instances,
    claim_notes_nothing,
    release_asks_counters_alone,
    another_origin_is_not_asked,
    claim_asks_nothing,
    old_generations_count,
    numbers_do_not_count,
    no_fencing,
    since_is_ignored,
    backfills_are_seen,
    backfills_see_scheduled_runs_alone,
    nothing_is_taken_back_after_claim,
    made_without_a_look,
    any_means_all,
    newest_means_any,
    until_comes_early,
    until_passes_over_what_failed,
    nobody_looks_again,
    failures_are_not_told,
    newest_is_chosen_once,
    nothing_is_noted,
)
NAMES = ("offset-plus-1", "offset-minus-1", *(mutant.__name__ for mutant in MUTANTS[2:]))


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_the_oracle_notices(mutant: Callable[[Patch], None], tmp_path: Path, monkeypatch: Patch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        _live(tmp_path)


def _live(folder: Path) -> None:
    for number in range(WORLDS):
        run_on_sqlite(folder, 7, number)
