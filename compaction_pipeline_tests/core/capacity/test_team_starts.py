"""Starts of optimizers for a team: as many as its limits hold, and a reason whenever there are fewer than wanted."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.capacity.limits import NOTHING, Reserve, Standing, TeamBook, Use, standings
from compaction_pipeline.core.capacity.team import Limits, Team, Whitelisted
from compaction_pipeline.core.capacity.team_starts import needs_memory, starts_for_team
from compaction_pipeline_tests.builders import NOW

GB = 10**9
_reserves = st.builds(Reserve, st.integers(1, 8), st.integers(1, 20))
_limits = st.builds(Limits, st.none() | st.integers(0, 40), st.none() | st.integers(0, 100), st.none() | st.floats(0, 10))


def standing(limits: Limits, use: Use = Use()) -> Standing:
    return Standing(Team("ant", (), limits), limits, use)


@given(
    limits=_limits,
    hours=st.floats(0, 10),
    elsewhere=st.dictionaries(st.sampled_from("abcdef"), _reserves),
    own=st.dictionaries(st.sampled_from("abcdef"), _reserves),
    each=_reserves,
    wanted=st.integers(1, 6),
)
def test_as_many_start_as_the_limits_hold_and_no_more(
    limits: Limits, hours: float, elsewhere: dict[str, Reserve], own: dict[str, Reserve], each: Reserve, wanted: int
) -> None:
    use = Use(gb_hours=hours, by_owner=elsewhere)
    may, why = starts_for_team(standing(limits, use), own, each, wanted)
    assert 0 <= may <= wanted
    assert bool(why) == (may < wanted)
    taken = sum({**elsewhere, **own}.values(), NOTHING)

    def holds(count: int) -> bool:
        return (
            (limits.slots is None or taken.slots + count * each.slots <= limits.slots)
            and (limits.memory_bytes is None or taken.memory_bytes + count * each.memory_bytes <= limits.memory_bytes)
            and (limits.gb_hours is None or hours < limits.gb_hours)
        )

    assert may == 0 or holds(may)
    assert may == wanted or not holds(may + 1)


def test_a_team_that_is_whitelisted_or_has_no_limits_is_refused_nothing() -> None:
    book = TeamBook({"ant": Team("ant", (), Limits(1, GB, 0.0))}, (), (Whitelisted("ant", NOW + timedelta(hours=1), "x", "root", NOW),))
    for one in (standings(book, {}, NOW)["ant"], standing(Limits())):
        assert starts_for_team(one, {"o": Reserve(9, 0)}, Reserve(9, 0), 3) == (3, "")


@pytest.mark.parametrize(
    ("limits", "each", "text"),
    [
        (Limits(gb_hours=2.0), Reserve(1, GB), "it has used 2.50 of 2.00 GB-hours today"),
        (Limits(memory_bytes=8 * GB), Reserve(1, 0), "set the property 'memory' of the group"),
        (Limits(gb_hours=9.0), Reserve(1, 0), "set the property 'memory' of the group"),
        (Limits(slots=4), Reserve(2, GB), "it may use 4 slots, its optimizers and what its tasks use elsewhere take 3 slots"),
        (Limits(memory_bytes=8 * GB), Reserve(1, 6 * GB), "another optimizer needs 6.0 GB of memory"),
    ],
)
def test_the_reason_says_what_is_used_and_what_is_needed(limits: Limits, each: Reserve, text: str) -> None:
    use = Use(gb_hours=2.5, by_owner={"run": Reserve(1, GB)})
    may, why = starts_for_team(standing(limits, use), {"o": Reserve(2, 3 * GB)}, each, 1)
    assert may == 0
    assert text in why
    assert why.startswith("no more optimizers are started for team ant: ")


def test_only_slots_can_be_counted_without_a_known_memory() -> None:
    assert [needs_memory(limits) for limits in (Limits(slots=3), Limits(memory_bytes=1), Limits(gb_hours=1.0))] == [False, True, True]
