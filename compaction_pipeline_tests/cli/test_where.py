"""`--where` selects exactly the partitions that a person named. Otherwise the error lists the partitions that exist."""

from __future__ import annotations

import pytest

from compaction_pipeline.cli.where import selected_nodes
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.node import PartitionValue, TableNode
from compaction_pipeline.core.tables.node_keys import short_key
from compaction_pipeline.core.tables.table import TableIdentifier

TABLE = TableIdentifier("lake", ("shop",), "orders")


def node(day: str | None, bucket: int, region: str | None = "eu") -> TableNode:
    return TableNode(
        0, (PartitionValue("day", "date", day), PartitionValue("bucket", "int", bucket), PartitionValue("region", "string", region))
    )


FIRST, SECOND, ODD, NONE = node("2024-01-01", 1), node("2024-01-02", 1), node("2024-01-02", 2, "a/b,c=d"), node(None, 1)
NODES = {short_key(TABLE, item): item for item in (FIRST, SECOND, ODD, NONE)}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("day=2024-01-01", {FIRST}),
        ("bucket=1", {FIRST, SECOND, NONE}),
        ("day=2024-01-02,bucket=1", {SECOND}),
        ("bucket=1/day=2024-01-02", {SECOND}),
        ("day=null", {NONE}),
        (str(ODD), {ODD}),
        (short_key(TABLE, SECOND), {SECOND}),
    ],
)
def test_pairs_texts_and_keys_name_nodes(where: str, expected: set[TableNode]) -> None:
    assert selected_nodes(NODES, where) == expected


def test_a_value_may_hold_the_separators() -> None:
    odd = TableNode(0, (PartitionValue("path", "string", "a/b,c"), PartitionValue("n", "int", 1)))
    assert selected_nodes({short_key(TABLE, odd): odd}, "path=a/b,c,n=1") == {odd}


def test_a_single_value_may_look_like_another_pair() -> None:
    odd, plain = node("2024-01-01", 1, "a/b c=d"), node("2024-01-01", 1, "a")
    nodes = {short_key(TABLE, item): item for item in (odd, plain)}
    assert selected_nodes(nodes, "region=a/b c=d") == {odd}
    assert selected_nodes(nodes, "region=a/b c=d,bucket=1") == {odd}
    assert selected_nodes(nodes, "bucket=1/region=a") == {plain}


def test_a_text_with_two_readings_is_refused_with_both() -> None:
    one, other = node("2024-01-01", 1, "a/bucket=1"), node("2024-01-01", 1, "a")
    with pytest.raises(ConfigError, match="may mean region is 'a/bucket=1' or region is 'a' and bucket is '1': name all fields"):
        selected_nodes({short_key(TABLE, item): item for item in (one, other)}, "region=a/bucket=1")


@pytest.mark.parametrize("where", ["region=null", "region=null,day=2024-01-01", "day=2024-01-01/bucket=1/region=null"])
def test_no_value_and_the_text_null_are_refused_with_the_keys_that_distinguish_them(where: str) -> None:
    absent, text = node("2024-01-01", 1, None), node("2024-01-01", 1, "null")
    nodes = {short_key(TABLE, item): item for item in (absent, text, FIRST)}
    with pytest.raises(
        ConfigError, match=r"may mean .*region is null \(e\.g\. .*\) or .*region is 'null' \(e\.g\. .*\): use a node's key"
    ) as refused:
        selected_nodes(nodes, where)
    for item in (absent, text):
        assert f"(e.g. {short_key(TABLE, item)})" in str(refused.value)
        assert selected_nodes(nodes, short_key(TABLE, item)) == {item}
    assert selected_nodes(nodes, "bucket=1") == {absent, text, FIRST}
    del nodes[short_key(TABLE, absent)]
    assert selected_nodes(nodes, where) == {text}


def test_a_partition_that_two_specs_share_is_not_ambiguous() -> None:
    old = TableNode(0, (PartitionValue("n", "int", 1), PartitionValue("k", "int", 2)))
    new = TableNode(1, (PartitionValue("n", "long", 1), PartitionValue("m", "int", 2)))
    nodes = {short_key(TABLE, item): item for item in (old, new)}
    assert selected_nodes(nodes, "n=1") == {old, new}


def test_an_unknown_field_is_answered_with_the_fields_there_are() -> None:
    with pytest.raises(
        ConfigError, match="'dya', but the partition fields are bucket, day, region, or give the key of a node, for example "
    ):
        selected_nodes(NODES, "dya=2024-01-01")


def test_a_partition_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(NotFoundError, match=r"matches no partition; there are .*day=2024-01-01/bucket=1"):
        selected_nodes(NODES, "day=1999-01-01")


def test_an_unpartitioned_table_has_nothing_to_select() -> None:
    whole = TableNode(0)
    nodes = {short_key(TABLE, whole): whole}
    assert selected_nodes(nodes, "unpartitioned") == {whole}
    with pytest.raises(ConfigError, match="not partitioned: leave --where away"):
        selected_nodes(nodes, "day=2024-01-01")


@pytest.mark.parametrize("where", ["day", "=x", "", "day=1,day=2"])
def test_a_text_that_is_no_pair_is_refused(where: str) -> None:
    with pytest.raises(ConfigError, match="--where"):
        selected_nodes(NODES, where)


def test_a_long_list_of_partitions_is_cut() -> None:
    many = [node(f"2024-02-{day:02d}", 1) for day in range(1, 29)]
    with pytest.raises(NotFoundError, match="and 18 more"):
        selected_nodes({short_key(TABLE, item): item for item in many}, "day=1999-01-01")
