"""The tree of a keyed table: ids, parents, children, and which nodes share rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.keyed.tree import ROOT, DataTreeNode
from compaction_pipeline_tests.strategies import tree_nodes

hashes = st.integers(0, 2**31 - 1)


# Amoro's own table of ids (its test `TestTreeNode`).
@pytest.mark.parametrize(("mask", "index", "node_id"), [(0, 0, 1), (1, 0, 2), (1, 1, 3), (3, 0, 4), (3, 3, 7), (7, 3, 11), (7, 5, 13)])
def test_ids_are_those_of_amoro(mask: int, index: int, node_id: int) -> None:
    assert DataTreeNode(mask, index).id == node_id
    assert DataTreeNode.of_id(node_id) == DataTreeNode(mask, index)


@given(tree_nodes())
def test_an_id_round_trips(node: DataTreeNode) -> None:
    assert DataTreeNode.of_id(node.id) == node


@given(st.integers(1, 2**62))
def test_every_id_from_1_names_one_node(node_id: int) -> None:
    assert DataTreeNode.of_id(node_id).id == node_id


@given(tree_nodes())
def test_a_node_is_the_parent_of_its_two_children(node: DataTreeNode) -> None:
    assert node.left.parent == node.right.parent == node
    assert node.left != node.right
    assert not node.left.shares_rows_with(node.right)


@given(tree_nodes(), hashes)
def test_a_row_of_a_node_is_in_exactly_one_of_its_children(node: DataTreeNode, key_hash: int) -> None:
    def holds(each: DataTreeNode) -> bool:
        return DataTreeNode.of_hash(each.mask, key_hash) == each

    assert holds(node) == (holds(node.left) or holds(node.right))
    assert not (holds(node.left) and holds(node.right))


@given(tree_nodes(), tree_nodes(), hashes)
def test_two_nodes_share_rows_exactly_when_one_is_within_the_other(one: DataTreeNode, other: DataTreeNode, key_hash: int) -> None:
    holds_both = all(DataTreeNode.of_hash(each.mask, key_hash) == each for each in (one, other))
    if holds_both:
        assert one.shares_rows_with(other)
    if one.is_within(other):
        # A hash whose bits are the index of the deeper node lies in both.
        assert DataTreeNode.of_hash(other.mask, one.index) == other


@given(tree_nodes())
def test_a_node_is_within_exactly_its_ancestors_and_itself(node: DataTreeNode) -> None:
    above = [node]
    while above[-1] != ROOT:
        above.append(above[-1].parent)
    every_level = [DataTreeNode(each.mask, index) for each in above for index in {0, each.mask, each.index}]
    assert {each for each in every_level if node.is_within(each)} == set(above)


@pytest.mark.parametrize(("mask", "index"), [(4, 0), (-1, 0), (2, 1), (3, 4), (3, -1), (0, 1)])
def test_a_node_that_cannot_be_is_refused(mask: int, index: int) -> None:
    with pytest.raises(ValueError, match=r"the (mask|index) of a tree node is -?\d+ but must be"):
        DataTreeNode(mask, index)


def test_the_root_has_no_parent_and_no_id_below_1_names_a_node() -> None:
    with pytest.raises(ValueError, match="no parent"):
        _ = ROOT.parent
    with pytest.raises(ValueError, match="at least 1"):
        DataTreeNode.of_id(0)
