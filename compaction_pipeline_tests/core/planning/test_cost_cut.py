"""The cut by GB-hours: it only leaves work out, keeps within what is left, and reaches every node after some days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.fragmentation.verdict import PlanReason, PlanReasonCode
from compaction_pipeline.core.planning.benefit import DueNode
from compaction_pipeline.core.planning.budget import node_gains, nodes_together
from compaction_pipeline.core.planning.cost_cut import cut_by_cost, reached
from compaction_pipeline.core.planning.plan import CostLimit
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW, PLENTY, TABLE, node, planned
from compaction_pipeline_tests.core.planning.test_planning_laws import Situation, plan_of, situations

# A task costs one GB-hour for each kilobyte that it reads.
BYTES_OF_AN_HOUR = 1024
OTHER = TableIdentifier(TABLE.catalog, TABLE.namespace, "other")


def works_of(sizes: list[int]) -> list[Work]:
    return [example(f"t{number}", inputs_kb=size, node=node(number)).work for number, size in enumerate(sizes)]


def cost_of(work: Work) -> float:
    return work.bytes_read / BYTES_OF_AN_HOUR


@dataclass(frozen=True)
class Line:
    """The hours that are left, those of a whole day, since when nodes have been due, and what is due on other tables."""

    left: float
    whole: float = 1e9
    since: Mapping[TableNode, datetime] = field(default_factory=dict)
    beside: Sequence[DueNode] = ()

    def due(self, works: Sequence[Work], gains: Mapping[TableNode, int]) -> list[DueNode]:
        nodes = dict.fromkeys(work.node for work in works)
        costs = {each: sum(cost_of(work) for work in works if work.node == each) for each in nodes}
        minor, together = CompactionType.MINOR, nodes_together(works)
        return [
            DueNode(TABLE, each, minor, 1, gains.get(each, 0), costs[each], since=self.since.get(each), together=together[each])
            for each in nodes
        ]

    def limit(self, works: Sequence[Work], gains: Mapping[TableNode, int]) -> CostLimit:
        due = self.due(works, gains)
        found = reached([*due, *self.beside], self.left, self.whole, NOW)
        nodes = frozenset(one.node for one in found if one.table == TABLE)
        return CostLimit("ant", self.left, nodes, {one.node: one.gb_hours for one in due})


def cut(works: Sequence[Work], gains: Mapping[TableNode, int], line: Line) -> tuple[Sequence[Work], Mapping[TableNode, PlanReason]]:
    return cut_by_cost(works, line.limit(works, gains))


_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@given(_sizes, st.lists(st.integers(0, 50), min_size=8, max_size=8), st.floats(0, 200), st.floats(0, 200), st.data())
def test_what_is_kept_fits_and_nothing_that_is_worth_more_is_cut_for_it(
    sizes: list[int], gained: list[int], left: float, whole: float, data: st.DataObject
) -> None:
    works = works_of(sizes)
    gains = {work.node: gain for work, gain in zip(works, gained, strict=False)}
    waited = {work.node: NOW - timedelta(days=data.draw(st.integers(0, 9))) for work in works if data.draw(st.booleans())}
    kept, below = cut(works, gains, Line(left, whole, waited))
    nodes = {work.node for work in kept}
    assert nodes.isdisjoint(below)
    assert nodes | below.keys() == {work.node for work in works}
    assert all(reason.code is PlanReasonCode.BELOW_BUDGET_CUT for reason in below.values())
    costs = {work.node: cost_of(work) for work in works}
    assert sum(costs[each] for each in nodes) <= left + 1e-6 or (len(nodes) == 1 and costs[next(iter(nodes))] > whole)
    if not waited:
        worth = {each: gains[each] / costs[each] for each in costs}
        assert min((worth[each] for each in nodes), default=1e9) >= max((worth[each] for each in below), default=0.0) - 1e-9


def _naively_reached(line: Line, costs: dict[TableNode, float], gains: dict[TableNode, int]) -> list[TableNode]:
    """Take the best node that is left, again and again. A node is as many places further up as it has waited days."""

    def worth(node: TableNode) -> tuple[float, str]:
        return (-gains[node] / costs[node], str(node))

    places = {node: sum(worth(other) < worth(node) for other in costs) for node in costs}
    left, reached, budget = set(costs), [], line.left
    while left:
        since = {node: line.since.get(node, NOW) for node in left}
        node = min(left, key=lambda node: (places[node] - (NOW - since[node]).days, since[node], str(node)))
        begins_alone = not reached and line.left > 0 and costs[node] > line.whole
        if costs[node] > budget and not begins_alone:
            return reached
        reached.append(node)
        left.remove(node)
        budget -= costs[node]
    return reached


@given(_sizes, st.lists(st.integers(0, 50), min_size=8, max_size=8), st.integers(0, 200), st.integers(0, 200), st.data())
def test_a_naive_cut_reaches_the_same_nodes(sizes: list[int], gained: list[int], left: int, whole: int, data: st.DataObject) -> None:
    """Two tasks may be on one node. Costs and limits are whole numbers, so that both add up alike."""
    works = [replace(work, node=node(data.draw(st.integers(0, 5)))) for work in works_of(sizes)]
    gains = {work.node: gain for work, gain in zip(works, gained, strict=False)}
    waited = {each: NOW - timedelta(days=data.draw(st.integers(0, 9))) for each in gains if data.draw(st.booleans())}
    line = Line(left, whole, waited)
    costs = {each: sum(cost_of(work) for work in works if work.node == each) for each in gains}
    kept, below = cut(works, gains, line)
    reached = set(_naively_reached(line, costs, gains))
    assert kept == [work for work in works if work.node in reached]
    assert below.keys() == gains.keys() - reached


@given(_sizes, st.lists(st.integers(0, 50), min_size=8, max_size=8))
def test_every_node_is_reached_after_as_many_days_as_there_are_nodes(sizes: list[int], gained: list[int]) -> None:
    """While others come new each day, and a day has room for the largest node alone."""
    works = works_of(sizes)
    gains = {work.node: gain for work, gain in zip(works, gained, strict=False)}
    last: TableNode = works[-1].node
    since = {last: NOW - timedelta(days=len(works))}
    kept, _ = cut(works, gains, Line(max(map(cost_of, works)), since=since))
    assert last in {work.node for work in kept}


def test_a_node_larger_than_a_day_begins_alone_when_it_comes_first() -> None:
    works = works_of([100, 1])
    large, small = (work.node for work in works)
    kept, below = cut(works, {large: 1000, small: 1}, Line(50, 60))
    assert ([work.node for work in kept], list(below)) == ([large], [small])
    assert "team ant has 50 GB-hours left today (UTC) beside its waiting and running tasks; the 2.93 of this node" in below[small].text
    assert cut(works, {large: 1000, small: 1}, Line(50, 250))[0] == []


@given(situations(), st.floats(0, 20))
def test_a_plan_with_a_limit_of_cost_only_leaves_nodes_out(situation: Situation, left: float) -> None:
    files, in_use, rules, request = situation
    whole = plan_of(situation)
    limit = Line(left).limit(whole.due, node_gains(whole.due))
    cut = planned(files, request, rules=rules, in_use=in_use, budget=replace(PLENTY, cost=limit))
    assert [work for work in whole.tasks if work in cut.tasks] == list(cut.tasks)
    groups = {work.group for work in cut.tasks if work.group}
    assert all(work in cut.tasks for work in whole.tasks if work.group in groups)
    reasons = {verdict.node: verdict.reason.code for verdict in cut.verdicts}
    for work in whole.tasks:
        if not any(each.node == work.node for each in cut.tasks):
            assert reasons[work.node] is PlanReasonCode.BELOW_BUDGET_CUT
    assert (
        planned(files, request, rules=rules, in_use=in_use, budget=replace(PLENTY, cost=replace(limit, reached=frozenset(limit.costs))))
        == whole
    )
    assert set(whole.tasks) <= set(whole.due)


@given(_sizes, st.lists(st.integers(0, 50), min_size=8, max_size=8), st.integers(0, 200), st.integers(0, 8))
def test_the_line_is_the_same_whichever_of_the_teams_tables_has_a_node(sizes: list[int], gained: list[int], left: int, moved: int) -> None:
    """Nodes of another table take their part of the hours as those of the table itself do."""
    works = works_of(sizes)
    gains = {work.node: gain for work, gain in zip(works, gained, strict=False)}
    # Equal worth is decided by the name of the table, so the nodes are told apart.
    gains = {each: 100 * gain + number for number, (each, gain) in enumerate(gains.items())}
    line = Line(left)
    together = {one.node for one in reached(line.due(works, gains), left, line.whole, NOW)}
    here, there = works[moved:], works[:moved]
    beside = [replace(one, table=OTHER) for one in line.due(there, gains)]
    kept, below = cut(here, gains, replace(line, beside=beside))
    assert below.keys() == {work.node for work in here} - together
    assert [work.node for work in kept] == [work.node for work in here if work.node in together]


def test_nodes_that_are_worked_on_together_are_reached_together_or_not_at_all() -> None:
    """Otherwise the best of them would keep its hours for ever, and never be planned."""
    *grouped, alone = (replace(work, group="g" if number < 2 else None) for number, work in enumerate(works_of([8, 5, 1])))
    works = [*grouped, alone]
    gains = {grouped[0].node: 800, grouped[1].node: 5, alone.node: 1}
    first, of_group, whole = cost_of(grouped[0]), sum(map(cost_of, grouped)), sum(map(cost_of, works))
    kept, below = cut(works, gains, Line(first, whole))
    assert kept == []
    assert below.keys() == gains.keys()
    assert list(cut(works, gains, Line(of_group, whole))[0]) == grouped
    assert list(cut(works, gains, Line(whole, whole))[0]) == works
    # What is larger than a day is begun when it comes first.
    assert list(cut(works, gains, Line(first, first))[0]) == grouped


def test_a_node_that_was_not_compared_with_others_waits_until_it_was() -> None:
    work = works_of([1])[0]
    kept, below = cut_by_cost([work], CostLimit("ant", 9.0))
    assert kept == []
    assert "until a tick has compared it with what is due on the other tables of team ant" in below[work.node].text
