"""Under a budget the nodes with the most benefit for their cost come first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.planning.benefit import DueNode, budget_of, ranked
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline_tests.builders import NOW, TABLE, node


def due(day: int, benefit: float, cost: float) -> DueNode:
    return DueNode(TABLE, node(day), CompactionType.MINOR, 1, benefit, cost)


dues = st.lists(st.builds(due, st.integers(1, 28), st.floats(0, 1e6), st.floats(0, 1e3)), max_size=12)


def test_the_line_lies_where_the_budget_ends_and_nothing_below_it_is_taken() -> None:
    found = ranked([due(1, 10, 2), due(2, 100, 1), due(3, 9, 2), due(4, 1, 0.5)], 3.5, NOW)
    assert [(one.due.node, one.is_within) for one in found] == [(node(2), True), (node(1), True), (node(3), False), (node(4), False)]
    assert [one.gb_hours_so_far for one in found] == [1, 3, 5, 5.5]


@given(dues, st.floats(0.001, 1e4))
def test_a_budget_reaches_a_prefix_that_costs_no_more(nodes: list[DueNode], budget: float) -> None:
    found = ranked(nodes, budget, NOW)
    assert sorted(map(str, (one.due for one in found))) == sorted(map(str, nodes))
    taken = [one for one in found if one.is_within]
    assert list(found[: len(taken)]) == taken
    assert sum(one.due.gb_hours for one in taken) <= budget * (1 + 1e-9)
    more = ranked(nodes, budget * 2, NOW)
    assert sum(one.is_within for one in more) >= len(taken)


def test_a_node_gains_a_place_for_each_day_that_it_has_been_due() -> None:
    nodes = [due(1, 30, 1), due(2, 20, 1), replace(due(3, 10, 1), since=NOW - timedelta(days=2, hours=1))]
    assert [one.due.node for one in ranked(nodes, 1, NOW)] == [node(3), node(1), node(2)]
    assert [one.due.node for one in ranked(nodes, 1, NOW - timedelta(days=1))] == [node(1), node(3), node(2)]


@pytest.mark.parametrize(("text", "value"), [("4GBh", 4.0), (" 0.25 gbh ", 0.25)])
def test_a_budget_is_gb_hours(text: str, value: float) -> None:
    assert budget_of(text) == value


@pytest.mark.parametrize("text", ["", "4", "4GB", "-1GBh", "0GBh", "nanGBh", "1e3GBh", "9" * 400 + "GBh"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be GB-hours above 0, for example 4GBh"):
        budget_of(text)
