"""The limits of teams: together they never use more than all have, whatever is lent, ended, whitelisted, begun and finished in between."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from compaction_pipeline.core.capacity.limits import Standing, TeamBook, Use, slot_limits, standings
from compaction_pipeline.core.capacity.loan import (
    LONGEST_LOAN,
    Loan,
    asked,
    check_approval,
    check_change,
    check_possible,
    ended,
    moment_of_move,
    next_midnight,
)
from compaction_pipeline.core.capacity.team import Limits, Team, Whitelisted, checked, whitelisted
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline_tests.builders import NOW

HOUR = timedelta(hours=1)
NAMES = ("ant", "bee", "cat")


def team(name: str, slots: int | None = None, memory: int | None = None, gb_hours: float | None = None) -> Team:
    return Team(name, (), Limits(slots, memory, gb_hours))


def loan(
    lender: str, borrower: str, slots: int = 0, gb_hours: float = 0.0, began: datetime | None = None, until: datetime = NOW + HOUR
) -> Loan:
    return Loan("l1", lender, borrower, until, "ann", NOW - HOUR, slots, gb_hours, "bob", "root", began)


class Teams(RuleBasedStateMachine):
    """Three teams with limits whose attempts begin where there is room. No limit is lowered below what is used."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.book = TeamBook({name: team(name, slots=3) for name in NAMES})
        self.started: dict[str, list[datetime]] = defaultdict(list)
        self.apart: set[str] = set()

    def stands(self) -> dict[str, Standing]:
        return standings(self.book, {name: Use(tuple(began)) for name, began in self.started.items()}, self.now)

    @rule(name=st.sampled_from(NAMES), times=st.integers(1, 4))
    def begin(self, name: str, times: int) -> None:
        for _ in range(times):
            if self.stands()[name].places() != 0:
                self.started[name].append(self.now)

    @rule(name=st.sampled_from(NAMES), which=st.integers(0, 9))
    def finish(self, name: str, which: int) -> None:
        if self.started[name]:
            self.started[name].pop(which % len(self.started[name]))

    @rule(lender=st.sampled_from(NAMES), borrower=st.sampled_from(NAMES), slots=st.integers(1, 4), minutes=st.integers(1, 9))
    def lend(self, lender: str, borrower: str, slots: int, minutes: int) -> None:
        if lender == borrower:
            return
        wish = Loan(f"l{len(self.book.loans)}", lender, borrower, self.now + timedelta(minutes=minutes), "ann", self.now, slots)
        teams, loans = self.book.teams, self.book.loans
        self.now = moment_of_move(loans, self.now)
        try:
            check_approval(wish, teams[lender], teams[borrower], loans, 0.0, self.now)
        except ConfigError:
            assert slots > 3 - sum(one.slots for one in loans if one.lender == lender and one.counts(self.now))
            return
        self.book = replace(self.book, loans=(*loans, replace(wish, began_at=self.now)))

    @rule(which=st.integers(0, 9))
    def end(self, which: int) -> None:
        if self.book.loans:
            number = which % len(self.book.loans)
            loans = list(self.book.loans)
            self.now = moment_of_move(loans, self.now)
            loans[number] = ended(loans[number], self.now) if loans[number].end > self.now else loans[number]
            self.book = replace(self.book, loans=tuple(loans))

    @rule(three=st.permutations(NAMES), slots=st.integers(1, 3))
    def lend_on_while_owed(self, three: list[str], slots: int) -> None:
        """A borrower uses all that it may, the loan ends, and a third team uses all that it may when it borrows the same slots then."""
        lender, borrower, third = three
        before = len(self.book.loans)
        self.lend(lender, borrower, slots, 9)
        if len(self.book.loans) == before:
            return
        self.wait(1)
        self.begin(borrower, 9)
        self.wait(1)
        self.end(before)
        self.wait(1)
        self.lend(lender, third, slots, 9)
        self.begin(third, 9)

    @rule(name=st.sampled_from(NAMES), minutes=st.integers(1, 3))
    def whitelist(self, name: str, minutes: int) -> None:
        entry = Whitelisted(name, self.now + timedelta(minutes=minutes), "a release", "root", self.now)
        self.book = replace(self.book, whitelist=(*self.book.whitelist, entry))
        self.apart.add(name)

    @rule(minutes=st.integers(0, 5))
    def wait(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @invariant()
    def together_they_keep_the_limit(self) -> None:
        """Also when every team begins all that it may. A whitelisted team stands apart, and so does what it began then and still runs."""
        if self.apart:
            return
        kept = {name: list(began) for name, began in self.started.items()}
        for name in NAMES:
            places = self.stands()[name].places()
            assert places is not None
            self.started[name] += [self.now] * places
        assert sum(len(self.started[name]) for name in NAMES) <= 3 * len(NAMES)
        self.started = defaultdict(list, kept)

    @invariant()
    def all_that_is_free_may_be_used(self) -> None:
        """Nothing is held back while no team uses more than is left to it. So all limits together are the sum of their own."""
        if all(len(self.started[name]) == 0 for name in NAMES):
            limits = slot_limits(self.book, {}, self.now)
            assert sum(limit or 0 for limit in limits.values()) == 3 * len(NAMES)

    @invariant()
    def whitelisted_teams_have_no_limit(self) -> None:
        exempt = whitelisted(self.book.whitelist, self.now)
        assert all((one.allowed == Limits()) == (name in exempt) for name, one in self.stands().items())


TestTeams = Teams.TestCase


def test_a_borrower_gets_only_what_the_lender_no_longer_uses_and_gives_back_what_it_no_longer_uses() -> None:
    book = TeamBook({"ant": team("ant", slots=4), "bee": team("bee", slots=1)}, (loan("ant", "bee", slots=3, began=NOW),))
    before, later = NOW - HOUR, NOW + timedelta(minutes=1)
    assert slot_limits(book, {"ant": [before] * 4}, later) == {"ant": 1, "bee": 1}
    assert slot_limits(book, {"ant": [before] * 2}, later) == {"ant": 1, "bee": 3}
    assert slot_limits(book, {}, later) == {"ant": 1, "bee": 4}
    over = NOW + 2 * HOUR
    assert slot_limits(book, {"bee": [later] * 4}, over) == {"ant": 1, "bee": 1}
    assert slot_limits(book, {"bee": [later] * 2}, over) == {"ant": 3, "bee": 1}
    # What began after the loan had ended has nothing to do with it.
    assert slot_limits(book, {"bee": [over]}, over) == {"ant": 4, "bee": 1}


def test_slots_that_a_team_has_not_got_back_are_held_back_from_the_next_borrower() -> None:
    """Bee lends its slot to ant, and after the end of that loan to cat, while ant still uses it."""
    times = [NOW + timedelta(minutes=number) for number in range(6)]
    first = replace(loan("bee", "ant", slots=1, began=times[0]), ended_at=times[2])
    second = replace(loan("bee", "cat", slots=1, began=times[3]), loan_id="l2")
    book = TeamBook({"ant": team("ant", slots=1), "bee": team("bee", slots=1), "cat": team("cat", slots=0)}, (first, second))
    assert slot_limits(book, {"ant": [times[1]] * 2}, times[4]) == {"ant": 1, "bee": 0, "cat": 0}
    assert slot_limits(book, {"ant": [times[1]]}, times[4]) == {"ant": 1, "bee": 0, "cat": 1}


def test_slots_never_move_twice_in_one_instant() -> None:
    begun = loan("ant", "bee", slots=1, began=NOW, until=NOW + timedelta(microseconds=1))
    asked_for, of_hours = loan("ant", "bee", slots=1, until=NOW), loan("ant", "bee", gb_hours=1, began=NOW + HOUR)
    assert moment_of_move([], NOW) == moment_of_move([asked_for, of_hours], NOW) == NOW
    assert moment_of_move([begun], NOW) == NOW + timedelta(microseconds=2)
    assert moment_of_move([replace(begun, ended_at=NOW + HOUR)], NOW) == NOW + HOUR + timedelta(microseconds=1)
    assert moment_of_move([begun], NOW + HOUR) == NOW + HOUR


def test_gb_hours_are_lent_by_the_day_and_a_loan_ends_at_midnight() -> None:
    wish = asked(loan("ant", "bee", gb_hours=2.5, until=NOW + HOUR))
    assert wish.until == next_midnight(NOW + HOUR)
    assert wish.until.hour == wish.until.minute == 0
    far = asked(replace(wish, until=wish.asked_at + LONGEST_LOAN))
    assert far.asked_at < far.until <= far.asked_at + LONGEST_LOAN
    assert far.until == next_midnight(far.until)
    book = TeamBook({"ant": team("ant", gb_hours=10), "bee": team("bee", gb_hours=1)}, (replace(wish, began_at=NOW),))
    found = standings(book, {"bee": Use(gb_hours=3.4), "ant": Use(gb_hours=7.5)}, NOW)
    assert (found["ant"].allowed.gb_hours, found["bee"].allowed.gb_hours) == (7.5, 3.5)
    assert (found["ant"].places(), found["bee"].places()) == (0, None)
    assert standings(book, {"bee": Use(gb_hours=3.4)}, wish.until)["bee"].places() == 0
    # Ended by a person, it counts until midnight: what was used of it today stays charged to the lender.
    assert ended(replace(wish, began_at=NOW), NOW).end == next_midnight(NOW)
    assert ended(replace(loan("ant", "bee", slots=1), began_at=NOW), NOW).end == NOW


@pytest.mark.parametrize(
    ("wish", "lender", "borrower", "used", "says"),
    [
        (loan("ant", "bee", slots=3), team("ant", slots=4), team("bee", slots=1), 0.0, "2 slots to lend now"),
        (loan("ant", "bee", slots=1), team("ant"), team("bee", slots=1), 0.0, "team ant has no limit of slots"),
        (loan("ant", "bee", slots=1), team("ant", slots=4), team("bee"), 0.0, "team bee has no limit of slots"),
        (loan("ant", "bee", gb_hours=2), team("ant", gb_hours=4), team("bee", gb_hours=1), 3.0, "1 GB-hours a day to lend now"),
        (loan("ant", "bee", slots=1, began=NOW), team("ant", slots=4), team("bee", slots=1), 0.0, "approved already by root"),
        (loan("ant", "bee", slots=1, until=NOW), team("ant", slots=4), team("bee", slots=1), 0.0, "before anybody approved it"),
    ],
)
def test_what_cannot_be_lent(wish: Loan, lender: Team, borrower: Team, used: float, says: str) -> None:
    """Of the four slots of ant, two are lent already. What bee lent to ant is not ant's to lend."""
    lent = (loan("ant", "cat", slots=2, began=NOW), loan("bee", "ant", slots=9, began=NOW))
    with pytest.raises(ConfigError, match=says):
        check_approval(wish, lender, borrower, lent, used, NOW)
    check_approval(loan("ant", "bee", slots=2), team("ant", slots=4), team("bee", slots=1), lent, 0.0, NOW)


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        (loan("ant", "ant", slots=1), "cannot lend to itself"),
        (loan("ant", "bee"), "give one of"),
        (loan("ant", "bee", slots=1, gb_hours=1), "give one of"),
        (loan("ant", "bee", gb_hours=float("nan")), "give one of"),
        (loan("ant", "bee", slots=2**63 - 1), "'slots' of the loan is 9.22337e\\+18 but must be at most 100000"),
        (loan("ant", "bee", slots=1, until=NOW - HOUR), "later than now"),
        (loan("ant", "bee", slots=1, until=NOW - HOUR + LONGEST_LOAN + HOUR), "at most 30 days"),
    ],
)
def test_what_cannot_be_asked_for(wish: Loan, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        asked(wish)


@pytest.mark.parametrize(
    ("wish", "lender", "borrower", "says"),
    [
        (loan("ant", "bee", slots=1), team("ant"), team("bee", slots=1), "team ant has no limit of slots, .* `team set ant --slots"),
        (loan("ant", "bee", slots=1), team("ant", slots=9), team("bee"), "team bee has no limit of slots"),
        (loan("ant", "bee", gb_hours=1), team("ant", slots=9), team("bee", gb_hours=1), "no limit of GB-hours a day.*--gb-hours"),
        (loan("ant", "bee", slots=5), team("ant", slots=4), team("bee", slots=1), "team ant has 4 slots in all, so it cannot lend 5"),
    ],
)
def test_what_nobody_could_approve(wish: Loan, lender: Team, borrower: Team, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        check_possible(wish, lender, borrower)
    with pytest.raises(ConfigError, match=says):
        check_approval(wish, lender, borrower, (), 0.0, NOW)
    check_possible(replace(wish, slots=4, gb_hours=0.0), team("ant", slots=4), team("bee", slots=0))


def test_a_lender_is_neither_deleted_nor_lowered_below_what_it_lent() -> None:
    lent = (loan("ant", "bee", slots=2, began=NOW), loan("ant", "bee", gb_hours=5, began=NOW))
    before = team("ant", slots=4, gb_hours=9)
    for after in (
        None,
        team("ant", slots=1, gb_hours=9),
        team("ant", slots=4, gb_hours=4.9),
        team("ant", gb_hours=9),
        team("ant", slots=4),
    ):
        with pytest.raises(ConfigError, match="ant"):
            check_change(before, after, lent, NOW)
    check_change(before, team("ant", slots=2, gb_hours=5), lent, NOW)
    with pytest.raises(ConfigError, match="team bee cannot be deleted while it has loans"):
        check_change(team("bee"), None, lent, NOW)
    for gone in (None, team("ant", slots=0)):
        check_change(before, gone, lent, NOW + HOUR)


def test_a_team_that_is_held_says_why_with_figures() -> None:
    book = TeamBook({"ant": team("ant", 2, 8 * 10**9, 1.5)})
    held = standings(book, {"ant": Use((NOW, NOW), 8 * 10**9, 1.5)}, NOW, {"ant": NOW})["ant"]
    assert held.why_held is not None
    for said in ("team ant has used 1.50 of 1.50 GB-hours today (UTC)", "uses 2 of 2 slots", "of memory", "since 2"):
        assert said in held.why_held
    assert not held.waits_for_own_work
    by_slots = standings(book, {"ant": Use((NOW, NOW), 10**9, 1.0)}, NOW)["ant"]
    assert (by_slots.why_held, by_slots.waits_for_own_work) == ("team ant uses 2 of 2 slots", True)
    assert not standings(TeamBook({"ant": team("ant", 0)}), {}, NOW)["ant"].waits_for_own_work
    by_memory = replace(standings(book, {"ant": Use((NOW,), 7 * 10**9)}, NOW)["ant"], least_slot=2 * 10**9)
    assert by_memory.why_held == "team ant uses 7.0 GB of 8.0 GB of memory, and another task needs 2.0 GB"
    assert by_memory.waits_for_own_work
    assert not replace(by_memory, least_slot=9 * 10**9).waits_for_own_work
    free = standings(book, {"ant": Use((NOW,), 5 * 10**9, 1.0)}, NOW)["ant"]
    assert (free.why_held, free.places(), free.places(2 * 10**9), free.places(4 * 10**9)) == (None, 1, 1, 0)


@pytest.mark.parametrize(
    "wrong", [Team("a b"), Team("ant", ("",)), team("ant", -1), team("ant", None, 2**61), team("ant", gb_hours=float("inf"))]
)
def test_a_team_keeps_its_rules(wrong: Team) -> None:
    with pytest.raises(ConfigError):
        checked(wrong)
    assert checked(team("ant", 0, 0, 0.0)).limits.are_any
