"""Keys of nodes: each is read back as it was made, is not too long, and belongs to one node only."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.node import MAX_KEY_BYTES, PartitionValue, TableNode, node_key, parse_node_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.builders import TABLE, node
from compaction_pipeline_tests.strategies import table_identifiers, table_nodes


def text_of(value: str | int | float | bool | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else repr(value)


@given(table_identifiers(), table_nodes())
def test_a_key_is_read_back_as_it_was_made(table: TableIdentifier, of: TableNode) -> None:
    key = node_key(table, of)
    assert len(key.encode()) <= MAX_KEY_BYTES
    assert re.fullmatch(r"[A-Za-z0-9_\-.=&/%~]+", key)
    parsed = parse_node_key(key)
    if "~" in key:
        assert parsed is None
        return
    assert parsed is not None
    assert (parsed.table, parsed.spec_id, parsed.tree) == (table, of.spec_id, of.tree)
    assert parsed.values == tuple((value.name, text_of(value.value)) for value in of.partition)


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=400), max_size=6, unique=True))
def test_distinct_values_have_distinct_keys(values: list[str | None]) -> None:
    keys = {node_key(TABLE, TableNode(0, (PartitionValue("dt", "string", value),))) for value in values}
    assert len(keys) == len(values)


def test_null_empty_and_the_text_null_are_three_keys() -> None:
    keys = [node_key(TABLE, node(day)) for day in (None, "", "null")]
    assert keys == ["lake.shop.orders/0/dt/0-0", "lake.shop.orders/0/dt=/0-0", "lake.shop.orders/0/dt=null/0-0"]


def test_an_unpartitioned_node_has_an_empty_segment() -> None:
    assert node_key(TABLE, TableNode(0)) == "lake.shop.orders/0//0-0"


def test_a_long_key_is_cut_to_512_bytes_and_still_belongs_to_one_node() -> None:
    keys = {node_key(TABLE, node("x" * 600 + end)) for end in "ab"}
    assert {len(key) for key in keys} == {MAX_KEY_BYTES}
    assert len(keys) == 2


@pytest.mark.parametrize(
    "key", ["", "a", "a.b.c/0/0-0", "a.b/0//0-0", "a.b.c/x//0-0", "a.b.c/²//0-0", "a.b.c/0//0", "a.b.c/0//٣-0", "a.b.c/0/x/y/0-0"]
)
def test_a_text_that_is_no_key_is_not_read(key: str) -> None:
    assert parse_node_key(key) is None


def test_values_of_different_types_are_different_partitions() -> None:
    values = [
        PartitionValue("a", "int", 1),
        PartitionValue("a", "int", True),
        PartitionValue("a", "int", 1.0),
        PartitionValue("a", "int", "1"),
    ]
    assert len(set(values)) == 4
    assert PartitionValue("a", "double", 0.0) != PartitionValue("a", "double", -0.0)


def test_a_promoted_partition_is_the_same_partition() -> None:
    before, after = PartitionValue("a", "int", 1), PartitionValue("a", "long", 1)
    assert before == after
    assert len({before, after}) == 1
