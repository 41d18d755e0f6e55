"""Links between the pages of Dagster name partitions and runs as Dagster does."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.defs.markdown import is_shown_at_once
from compaction_pipeline.defs.page_links import node_links, partition_page, record_links
from compaction_pipeline_tests.defs.values import overview, record
from compaction_pipeline_tests.plain_names import NAMES


def test_the_address_of_a_partition_survives_any_key() -> None:
    page = partition_page(dg.AssetKey(["a b", "delta_files"]), "lake.shop.orders/0/day=1&b=%20/0-0")
    assert page == "/assets/a%20b/delta_files?view=partitions&partition=lake.shop.orders%2F0%2Fday%3D1%26b%3D%2520%2F0-0"


def test_a_node_links_to_its_record_its_snapshot_and_its_run() -> None:
    key = overview(1).key
    text = node_links(NAMES, key, record("r7", run_id="0123456789ab"))["links"].value
    assert "[r7](/assets/compaction_records?view=partitions&partition=lake.shop.orders)" in text
    assert "snapshot [8](/assets/delta_files?view=partitions&partition=" in text
    assert "run [01234567](/runs/0123456789ab)" in text


def test_a_commit_of_a_command_says_that_it_has_no_run() -> None:
    assert "made outside Dagster" in node_links(NAMES, overview(1).key, record())["links"].value


def test_a_record_of_many_nodes_links_to_some_and_counts_the_others() -> None:
    keys = tuple(overview(number % 28 + 1).key + str(number) for number in range(300))
    text = record_links(NAMES, record(node_keys=keys))["links"].value
    assert is_shown_at_once(text)
    linked = text.count("/assets/compacted_files?")
    assert linked >= 2
    assert f"and {300 - linked} more nodes" in text
