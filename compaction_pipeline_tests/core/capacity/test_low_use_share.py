"""Shares of low use: hours are shared among teams without loss, and a loan is refused for what its borrower could use better."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.limits import Standing, Use
from compaction_pipeline.core.capacity.low_use_share import (
    IdleDay,
    LowUseShare,
    OwnOptimizer,
    TeamIdle,
    UseHours,
    check_excuses,
    check_low_use,
    idle_of_teams,
    low_use_shares,
)
from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.checks.budgets import low_use_share, within_budget
from compaction_pipeline_tests.builders import NOW

GROUPS, TEAMS = ("heavy", "light", "night"), ("ant", "bee", "unassigned")
_hours = st.lists(
    st.builds(lambda group, hours, part: UseHours(group, hours, part * hours), st.sampled_from(GROUPS), st.floats(0, 50), st.floats(0, 1))
)
_spent = st.dictionaries(st.tuples(st.sampled_from(GROUPS), st.sampled_from(TEAMS)), st.floats(0, 1e6))


@given(_hours, st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(TEAMS)), _spent)
def test_all_hours_belong_to_some_team(hours: list[UseHours], teams: dict[str, str], spent: dict[tuple[str, str], float]) -> None:
    shares = low_use_shares(hours, teams, spent)
    assert sum(one.hours for one in shares) == pytest.approx(sum(one.hours for one in hours))
    assert sum(one.low_hours for one in shares) == pytest.approx(sum(one.low_hours for one in hours))
    assert all(-1e-9 <= one.share <= 1 + 1e-9 for one in shares)
    assert [one.share for one in shares] == sorted((one.share for one in shares), reverse=True)


_idle_days = st.lists(
    st.builds(
        IdleDay,
        st.sampled_from(GROUPS),
        st.floats(0, 1e5),
        st.one_of(st.none(), st.floats(0, 100)),
        st.dictionaries(st.sampled_from(TEAMS), st.floats(0, 1e5)),
    )
)


@given(_idle_days, st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(TEAMS)))
def test_all_idle_time_belongs_to_some_team(days: list[IdleDay], teams: dict[str, str]) -> None:
    found = idle_of_teams(days, teams, [LowUseShare("bee", 3, 2), LowUseShare("ant", 3, 0)])
    assert sum(one.idle_seconds for one in found) == pytest.approx(sum(one.seconds for one in days))
    assert sum(one.idle_gb_hours or 0 for one in found) == pytest.approx(sum(one.gb_hours or 0 for one in days))
    assert sum(one.low_use_hours for one in found) == 2
    of_groups = {one.group for one in days} & teams.keys()
    assert {teams[group] for group in of_groups} <= {one.team for one in found}


def test_idle_time_of_common_optimizers_is_shared_by_the_slot_time_of_its_day() -> None:
    days = [
        IdleDay("light", 80, 8.0, {"ant": 3.0, "bee": 1.0}),
        IdleDay("light", 10, None, {"bee": 1.0}),
        IdleDay("heavy", 7, 0.7, {"bee": 9.0}),
    ]
    assert idle_of_teams(days, {"heavy": "ant"}, [LowUseShare("ant", 9, 4)]) == [
        TeamIdle("ant", 67.0, 6.7, 4),
        TeamIdle("bee", 30.0, 2.0, 0.0),
    ]
    assert idle_of_teams([IdleDay("night", 5, None, {})], {}, ()) == [TeamIdle("unassigned", 5, None, 0.0)]


def test_a_group_is_its_teams_and_others_are_shared_by_slot_time() -> None:
    hours = [UseHours("heavy", 10, 5), UseHours("light", 8, 2), UseHours("night", 1, 1)]
    shares = low_use_shares(hours, {"heavy": "ant"}, {("light", "ant"): 300.0, ("light", "bee"): 100.0, ("heavy", "bee"): 9.0})
    assert shares == [LowUseShare("unassigned", 1, 1), LowUseShare("ant", 16, 6.5), LowUseShare("bee", 2, 0.5)]


def test_a_loan_is_refused_above_a_tenth_until_something_is_said_of_each() -> None:
    good = [OwnOptimizer(f"o{number}") for number in range(9)]
    low = [OwnOptimizer("idle", "4 of 4 slots idle"), OwnOptimizer("slow", "3% of 4 cores used")]
    check_low_use("ant", [], {})
    check_low_use("ant", [*good, low[0]], {})
    with pytest.raises(ConfigError, match=r"2 of its 11 optimizers .* \(idle: 4 of 4 slots idle; slow: 3% of 4 cores used\)"):
        check_low_use("ant", [*good, *low], {})
    with pytest.raises(ConfigError, match=r"cannot be \(slow: 3% of 4 cores used\)"):
        check_low_use("ant", [*good, *low], {"idle": "its jobs come at night", "slow": "  "})
    check_low_use("ant", [*good, *low], {"idle": "its jobs come at night", "slow": "its store is slow"})


def test_words_about_what_is_no_optimizer_of_the_team_are_refused() -> None:
    own = [OwnOptimizer("good"), OwnOptimizer("idle", "4 of 4 slots idle")]
    check_excuses("ant", own, {"idle": "its jobs come at night", "good": "it was idle an hour ago"})
    with pytest.raises(ConfigError, match=r"'other' is no optimizer of a group of team ant .* say it of idle"):
        check_excuses("ant", own, {"idle": "x", "other": "x"})
    with pytest.raises(ConfigError, match="none of its optimizers is of low use, so say nothing"):
        check_excuses("ant", own[:1], {"other": "x"})


def standing(limits: Limits, use: Use) -> Standing:
    return Standing(Team("ant", (), limits), limits, use)


@pytest.mark.parametrize(
    ("limits", "use", "text"),
    [
        (Limits(slots=2), Use((NOW, NOW)), ""),
        (Limits(), Use((NOW, NOW), 99, 99.0), ""),
        (Limits(slots=1), Use((NOW, NOW)), "team ant: it uses 2 of 1 slots"),
        (Limits(gb_hours=2), Use(gb_hours=2.0), ""),
        (Limits(gb_hours=2), Use(gb_hours=2.5), "team ant: it has used 2.50 of 2.00 GB-hours today"),
        (Limits(memory_bytes=10**9), Use((NOW,), 2 * 10**9), "team ant: it uses 2.0 of 1.0 GB of memory"),
    ],
)
def test_a_team_fails_its_budget_only_when_it_has_passed_a_limit(limits: Limits, use: Use, text: str) -> None:
    judged = within_budget([standing(limits, use)])
    assert judged.passed is not bool(text)
    assert text in judged.text


def test_the_share_of_low_use_fails_above_a_tenth() -> None:
    judged = low_use_share([LowUseShare("ant", 10, 1), LowUseShare("bee", 10, 1.1)])
    assert [failure.team for failure in judged.failures] == ["bee"]
    assert "11% of its 10.0 optimizer-hours" in judged.text
    assert dict(judged.figures) == {"low_use_percent": 11.0}
    assert low_use_share([]).passed
