"""Ways round: rows written by hand, and laws against every simple way and against every instance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compaction_pipeline.core.dependencies.center.cycles import Edge, WayRound, cycles
from compaction_pipeline.core.dependencies.center.graph import components, positive_way, way_through
from compaction_pipeline.core.dependencies.center.offsets import Offsets, upstream_times
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period
from compaction_pipeline.core.dependencies.center.weights import Weights

NOW = datetime(2026, 1, 15, tzinfo=timezone.utc)
BERLIN, UTC = "Europe/Berlin", "UTC"
CALENDARS = {
    "hours": Calendar(Period.HOUR, BERLIN),
    "more_hours": Calendar(Period.HOUR, UTC),
    "days": Calendar(Period.DAY, BERLIN),
    "more_days": Calendar(Period.DAY, BERLIN),
    "utc_days": Calendar(Period.DAY, UTC),
    "weeks": Calendar(Period.WEEK, BERLIN),
    "months": Calendar(Period.MONTH, BERLIN),
    "troll_hours": Calendar(Period.HOUR, "Antarctica/Troll"),
    "troll_days": Calendar(Period.DAY, "Antarctica/Troll"),
}
HOUR = timedelta(hours=1)


def _edges(text: str) -> list[Edge]:
    """Edges written like `days -1 hours; hours 0 days`."""
    return [Edge(down, up, Offsets.parse(offsets)) for down, offsets, up in (part.split() for part in text.split(";"))]


def _found(text: str) -> list[WayRound]:
    return cycles(_edges(text), CALENDARS, NOW)


@pytest.mark.parametrize(
    "edges",
    [
        "days -1 days",
        "hours -1 hours",
        "weeks -1 weeks",
        "months -1 months",
        "days 0 more_days",
        "days 0 more_days; more_days -1 days",
        "days {-1,-7} more_days; more_days [-3,-1] days",
        "days whole hours; hours -1 days",
        "days whole hours; hours -1 days; hours -1 hours; days -1 days",
        "days last more_hours; more_hours -1 days",
        "days 0 hours; hours -1 hours",
        "weeks whole days; days -1 weeks",
        "weeks whole hours; hours -1 weeks; hours -1 hours",
        "months whole days; days -1 months; days -1 days",
        "months whole hours; hours -1 months; hours -1 hours; months -1 months",
        "months whole days; days whole hours; hours -1 months",
    ],
)
def test_ways_that_go_back_in_time_are_allowed(edges: str) -> None:
    assert _found(edges) == []


@pytest.mark.parametrize(
    ("edges", "weight"),
    [
        ("days 0 days", timedelta(0)),
        ("hours 0 hours", timedelta(0)),
        ("days [-1,0] days", timedelta(0)),
        ("days 0 more_days; more_days 0 days", timedelta(0)),
        ("days 1 more_days; more_days -1 days", 2 * HOUR),  # 25 hours forward, and at least 23 back
        ("days 0 hours; hours 0 days", timedelta(0)),
        ("days last hours; hours 0 days", 24 * HOUR),
        ("days whole hours; hours 0 days", 24 * HOUR),
        ("days -1 hours; hours 1 more_hours; more_hours 0 days", timedelta(0)),
        ("weeks 0 days; days 0 weeks", timedelta(0)),
        ("weeks last days; days 0 weeks", timedelta(days=6)),  # clocks change on Sundays, after midnight
        ("months last days; days 0 months", timedelta(days=30, hours=1)),
        # By label, but the days of UTC begin an hour or two later, so an instance of each waits for the other's.
        ("days 0 utc_days; utc_days 0 days", HOUR),
        ("days 0 more_days; more_days 0 days; more_days -1 days", timedelta(0)),
    ],
)
def test_ways_that_do_not_go_back_are_refused(edges: str, weight: timedelta) -> None:
    found = _found(edges)
    assert [way.weight for way in found] == [weight]


def test_a_zone_that_turns_back_by_two_hours_gets_no_proof_by_its_clock() -> None:
    assert len(_found("troll_days whole troll_hours; troll_hours -1 troll_days")) == 1
    assert _found("troll_days whole troll_hours; troll_hours -2 troll_days") == []


def test_each_group_of_jobs_has_its_own_way() -> None:
    apart = _found("days 0 more_days; more_days 0 days; hours 0 more_hours; more_hours 0 hours; days 0 hours")
    assert sorted(sorted(edge.downstream for edge in way.edges) for way in apart) == [["days", "more_days"], ["hours", "more_hours"]]


def test_the_words_name_each_step_and_what_to_do() -> None:
    (way,) = _found("days 0 more_days; more_days {0,-7} days")
    assert way.text() in {
        f"an instance could wait for itself: {steps}; take one of these edges away, or give it an earlier offset such as -1"
        for steps in (
            "days waits for more_days at 0, more_days waits for days at {0,-7}",
            "more_days waits for days at {0,-7}, days waits for more_days at 0",
        )
    }


def test_an_edge_of_an_unknown_job_is_a_fault_of_the_caller() -> None:
    with pytest.raises(KeyError):
        cycles([Edge("days", "nobody", Offsets.parse("0")), Edge("nobody", "days", Offsets.parse("0"))], CALENDARS, NOW)


OFFSETS = {
    "same": ("0", "-1", "{0,-1}", "[-2,-1]"),
    "finer": ("0", "-1", "last", "whole", "[-3,1]"),
    "coarser": ("0", "-1", "[-2,-1]"),
}
ORDER = (Period.HOUR, Period.DAY, Period.WEEK, Period.MONTH)
JOBS = [name for name in CALENDARS if not name.startswith("troll")]


@st.composite
def graphs(draw: st.DrawFn) -> list[Edge]:
    jobs = draw(st.lists(st.sampled_from(JOBS), min_size=1, max_size=4, unique=True))
    edges = []
    for down, up in draw(st.lists(st.tuples(st.sampled_from(jobs), st.sampled_from(jobs)), min_size=1, max_size=7)):
        ranks = [ORDER.index(CALENDARS[job].period) for job in (down, up)]
        if set(ranks) != {2, 3}:
            kind = "same" if ranks[0] == ranks[1] else "finer" if ranks[1] < ranks[0] else "coarser"
            edges.append(Edge(down, up, Offsets.parse(draw(st.sampled_from(OFFSETS[kind])))))
    return edges


@given(graphs())
def test_refused_is_what_no_clock_proves_for_every_simple_way(edges: list[Edge]) -> None:
    found = cycles(edges, CALENDARS, NOW)
    for way in found:
        assert all(one.upstream == two.downstream for one, two in zip(way.edges, (*way.edges[1:], way.edges[0]), strict=True))
        assert way.weight >= timedelta(0)
    weights = Weights(NOW)
    ways = list(_simple_ways(edges))
    clocks = (weights.utc, *weights.local_clocks((BERLIN, UTC)))
    proven = [all(sum(weights.of([_kind(edge) for edge in way], clock)) < 0 for way in ways) for clock in clocks]
    # Groups of jobs may each have a clock of their own.
    assert bool(found) <= (not any(proven))
    if len(components(*_numbered(edges))) == 1:
        assert bool(found) == (not any(proven))


@settings(max_examples=40)
@given(graphs(), st.sampled_from((datetime(2025, 10, 26), datetime(2026, 3, 29), datetime(2025, 3, 1))))
def test_no_instance_waits_for_itself_when_nothing_is_refused(edges: list[Edge], middle: datetime) -> None:
    around = [middle.replace(tzinfo=timezone.utc) + timedelta(days=days) for days in (-33, 33)]
    sorter = TopologicalSorter[tuple[str, int]]()
    for edge in edges:
        down, up = CALENDARS[edge.downstream], CALENDARS[edge.upstream]
        for time in down.between(*around):
            sorter.add((edge.downstream, time.number), *((edge.upstream, at.number) for at in upstream_times(edge.offsets, down, up, time)))
    try:
        sorter.prepare()
    except CycleError:
        assert cycles(edges, CALENDARS, NOW)


KINDS = [
    ("days", "0", "utc_days"),
    ("days", "[-3,5]", "hours"),
    ("days", "{0,23,24}", "hours"),
    ("days", "whole", "hours"),
    ("hours", "-1", "hours"),
    ("hours", "{-24,-30}", "more_hours"),
    ("hours", "-1", "days"),
    ("hours", "0", "months"),
    ("more_hours", "-1", "weeks"),
    ("months", "last-3", "days"),
    ("months", "[-3,30]", "days"),
]


@pytest.mark.parametrize(("down", "offsets", "up"), KINDS)
def test_a_weight_is_the_worst_of_every_time_one_by_one(down: str, offsets: str, up: str) -> None:
    weights, kind = Weights(NOW), (Offsets.parse(offsets), CALENDARS[down], CALENDARS[up])
    starts = [
        (_second(kind[1].start(time)), _second(kind[2].start(at)))
        for time in kind[1].between(NOW - timedelta(days=400), NOW + timedelta(days=400, seconds=1))
        for at in upstream_times(*kind, time)
    ]
    for clock in (weights.utc, *weights.local_clocks([BERLIN])):
        assert weights.of([kind], clock) == [max(clock.at(later) - clock.at(start) for start, later in starts)]


def test_an_edge_without_any_upstream_time_leads_nowhere() -> None:
    assert _found("days 25 hours; hours 0 days") == []


@given(st.integers(1, 7), st.data())
def test_components_are_nodes_that_reach_each_other(size: int, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=12))
    reach = {(node, node) for node in range(size)} | set(ends)
    for middle in range(size):
        reach |= {(one, two) for one in range(size) for two in range(size) if (one, middle) in reach and (middle, two) in reach}
    groups = components(size, ends)
    mutual = {tuple(two for two in range(size) if {(one, two), (two, one)} <= reach) for one in range(size)}
    assert sorted(tuple(sorted(group)) for group in groups) == sorted(mutual)
    place = {node: index for index, group in enumerate(groups) for node in group}
    assert all(place[after] <= place[before] for before, after in ends)


@given(st.integers(1, 5), st.data())
def test_a_positive_way_is_found_exactly_when_there_is_one(size: int, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=9))
    weights = data.draw(st.lists(st.integers(-3, 3), min_size=len(ends), max_size=len(ends)))
    order = data.draw(st.permutations(range(size)))
    way = positive_way(order, ends, weights)
    edges = [Edge(str(before), str(after), Offsets.parse("0")) for before, after in ends]
    ways = [list(_indexes(edges, simple)) for simple in _simple_ways(edges)]
    assert (way is not None) == any(sum(weights[index] for index in simple) > 0 for simple in ways)
    assert way is None or (way in _turns(ways) and sum(weights[index] for index in way) > 0)


@given(st.integers(1, 5), st.data())
def test_the_way_through_a_node_is_the_shortest(size: int, data: st.DataObject) -> None:
    ends = data.draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), max_size=9))
    edges = [Edge(str(before), str(after), Offsets.parse("0")) for before, after in ends]
    lengths = [len(way) for way in _simple_ways(edges) if "0" in {edge.downstream for edge in way}]
    way = way_through(0, ends)
    assert (len(way) if way else None) == min(lengths, default=None)


def _kind(edge: Edge) -> tuple[Offsets, Calendar, Calendar]:
    return edge.offsets, CALENDARS[edge.downstream], CALENDARS[edge.upstream]


def _second(at: datetime) -> int:
    return int(at.timestamp())


def _numbered(edges: Sequence[Edge]) -> tuple[int, list[tuple[int, int]]]:
    names = sorted({name for edge in edges for name in (edge.downstream, edge.upstream)})
    return len(names), [(names.index(edge.downstream), names.index(edge.upstream)) for edge in edges]


def _indexes(edges: Sequence[Edge], way: Sequence[Edge]) -> Iterator[int]:
    return (next(index for index, edge in enumerate(edges) if edge is step) for step in way)


def _turns(ways: Sequence[list[int]]) -> list[list[int]]:
    return [way[place:] + way[:place] for way in ways for place in range(len(way))]


def _simple_ways(edges: Sequence[Edge]) -> Iterator[list[Edge]]:
    """Every way round that comes to no job twice, begun at its smallest name."""

    def on(way: list[Edge]) -> Iterator[list[Edge]]:
        start, here = way[0].downstream, way[-1].upstream
        if here == start:
            yield way
        elif here > start and here not in {edge.downstream for edge in way}:
            for edge in edges:
                if edge.downstream == here:
                    yield from on([*way, edge])

    for edge in edges:
        yield from on([edge])
