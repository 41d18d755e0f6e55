"""The two forms of a node's key: nobody else has the long form, a person reads the short form, and both are safe in Dagster."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.node import PartitionValue, TableNode
from compaction_pipeline.core.tables.node_keys import MAX_KEY_BYTES, long_key, may_be_key_of, new_keys, short_key, table_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.builders import TABLE, node
from compaction_pipeline_tests.strategies import table_identifiers, table_nodes

_levels = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def of_value(value: str | int | float | bool | None, name: str = "dt") -> TableNode:
    return TableNode(0, (PartitionValue(name, "string", value),))


def test_the_long_form_has_every_part_of_a_node() -> None:
    several = TableNode(7, (PartitionValue("dt", "date", "2026-01-15"), PartitionValue("b", "int", 3)), DataTreeNode(3, 1))
    assert long_key(TABLE, several) == "lake.shop.orders/7/dt=2026-01-15&b=3/3-1"


@given(table_identifiers(), table_nodes(), table_identifiers(), table_nodes())
def test_different_nodes_have_different_long_forms(
    one: TableIdentifier, first: TableNode, other: TableIdentifier, second: TableNode
) -> None:
    keys = {long_key(one, first), long_key(one, second), long_key(other, first)}
    assert len(keys) == len({(one, first), (one, second), (other, first)})
    for key in keys:
        assert len(key.encode()) <= MAX_KEY_BYTES
        assert re.fullmatch(r"[A-Za-z0-9_\-.=&/%~]+", key)


@given(table_identifiers(), table_nodes(), table_identifiers(), table_nodes())
def test_a_short_form_is_never_the_long_form_of_another_node(
    one: TableIdentifier, first: TableNode, other: TableIdentifier, second: TableNode
) -> None:
    key = short_key(one, first)
    if key != long_key(one, first):
        assert key != long_key(other, second)
        assert key.count("/") <= 2 < long_key(other, second).count("/")


@given(table_identifiers(), table_nodes())
def test_a_key_is_one_that_dagster_takes_and_its_pages_do_not_split(table: TableIdentifier, of: TableNode) -> None:
    key = short_key(table, of)
    assert len(key.encode()) <= MAX_KEY_BYTES
    assert "..." not in key
    assert key == key.strip()
    assert not re.search(r"[\x00-\x1f,\[\]*\"|]", key)
    assert may_be_key_of(table, key)
    assert may_be_key_of(table, long_key(table, of)) or "~" in long_key(table, of)


@given(st.lists(st.none() | st.text(st.characters(codec="utf-8"), max_size=400), max_size=6, unique=True))
def test_distinct_values_have_distinct_keys(values: list[str | None]) -> None:
    nodes = [of_value(value) for value in values]
    for form in (long_key, short_key):
        assert len({form(TABLE, one) for one in nodes}) == len(values)


def test_null_empty_and_the_text_null_are_three_keys() -> None:
    nodes = [node(day) for day in (None, "", "null")]
    assert [long_key(TABLE, one) for one in nodes] == [
        "lake.shop.orders/0/dt/0-0",
        "lake.shop.orders/0/dt=/0-0",
        "lake.shop.orders/0/dt=null/0-0",
    ]
    assert [short_key(TABLE, one) for one in nodes] == ["shop.orders/dt", "shop.orders/dt=", "shop.orders/dt=null"]


def test_an_unpartitioned_node_has_no_values_in_its_key() -> None:
    assert long_key(TABLE, TableNode(0)) == "lake.shop.orders/0//0-0"
    assert short_key(TABLE, TableNode(0)) == "shop.orders"


def test_a_long_key_is_cut_to_512_bytes_and_still_belongs_to_one_node() -> None:
    nodes = [node("x" * 600 + end) for end in "ab"]
    keys = {long_key(TABLE, one) for one in nodes}
    assert {len(key) for key in keys} == {MAX_KEY_BYTES}
    assert len(keys) == 2
    assert {short_key(TABLE, one) for one in nodes} == keys


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("2026-01-15", "2026-01-15"),
        ("2026-01-15T10:30:00.5+00:00", "2026-01-15T10:30:00.5+00:00"),
        ("São Paulo", "São Paulo"),
        ("東京", "東京"),
        ("a.b@c_d", "a.b@c_d"),
        (True, "true"),
        (-3, "-3"),
        ("a/b&c=d%e~f", "a%2Fb%26c%3Dd%25e%7Ef"),
        ("a...b..c", "a%2E%2E%2Eb%2E%2Ec"),
        (" a  b ", "%20a%20%20b%20"),
        ('[a,b]*|"\n', "%5Ba%2Cb%5D%2A%7C%22%0A"),
    ],
)
def test_a_person_reads_values_as_they_are_where_dagster_allows_it(value: str | int | bool, read: str) -> None:
    assert short_key(TABLE, of_value(value)) == f"shop.orders/dt={read}"


def test_the_first_node_gets_the_short_form_and_later_ones_get_the_long_form() -> None:
    old, new = TableNode(0, node("1").partition), TableNode(1, node("1").partition)
    other = TableIdentifier("pond", TABLE.namespace, TABLE.name)
    assert new_keys(TABLE, [new, old], lambda keys: ()) == {old: "shop.orders/dt=1", new: "lake.shop.orders/1/dt=1/0-0"}
    assert new_keys(other, [old], lambda keys: ["shop.orders/dt=1"]) == {old: "pond.shop.orders/0/dt=1/0-0"}


def test_the_key_of_a_table_has_its_catalog() -> None:
    assert table_key(TABLE) == "lake.shop.orders"
    assert long_key(TABLE, node("1")).startswith("lake.shop.orders/")


@given(st.lists(_levels, min_size=3, max_size=5), st.lists(_levels, min_size=3, max_size=5))
def test_different_tables_have_different_keys(one: list[str], other: list[str]) -> None:
    keys = {table_key(TableIdentifier(levels[0], tuple(levels[1:-1]), levels[-1])) for levels in (one, other)}
    assert len(keys) == len({tuple(one), tuple(other)})
    assert all("..." not in key and "/" not in key and "|" not in key for key in keys)


@pytest.mark.parametrize("key", ["", "orders", "shop.orders2/dt=1", "lake.shop/dt=1", "shop/orders", "pond.shop.orders/0/dt=1/0-0"])
def test_a_text_of_another_table_is_not_taken_for_a_key(key: str) -> None:
    assert not may_be_key_of(TABLE, key)


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
