"""The links to the launchpad: where they lead, and which configuration they fill in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import NodeOverview, TableOverview
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.defs.jobs import CompactConfig
from compaction_pipeline.defs.launch_links import (
    MOST_CHARACTERS,
    Place,
    compact_nodes_link,
    compact_table_link,
    links_by_purpose,
    pause_table_link,
)
from compaction_pipeline.defs.markdown import LINE, is_shown_at_once
from compaction_pipeline.defs.pausing import PauseConfig
from compaction_pipeline_tests.defs.values import overview

HERE = Place("compaction_pipeline", "__repository__")


def config_of(link: str) -> dict[str, Any]:
    """The configuration of the job's op that a link fills in. It is one that the op accepts."""
    (text,) = parse_qs(urlsplit(link).query, strict_parsing=True)["config"]
    config: dict[str, Any] = yaml.safe_load(text)["ops"]["compact"]["config"]
    CompactConfig(**config)
    return config


def table(name: str, health: HealthStatus = HealthStatus.DUE, small_files: int = 3) -> TableOverview:
    metrics = NodeMetrics(data_files=small_files, small_data_files=small_files)
    due = 0 if health is HealthStatus.HEALTHY else 2
    return TableOverview(TableIdentifier("lake", ("shop",), name), 4, metrics, health, "due", due=due)


def links(nodes: Sequence[NodeOverview], tables: Sequence[TableOverview]) -> list[str]:
    # A window of 1,400 pixels cuts long lines off, so each link has a line of its own, above the line that says what it does.
    entries = links_by_purpose(HERE, nodes, tables)
    texts = [str(entries[name].value) for name in ("compact_worst", "compact_what_is_due", "compact_more") if name in entries]
    return [line for text in texts for line in text.replace("\\\n  ", " ").splitlines() if line != "Nothing is due."]


def test_the_link_of_nodes_names_their_keys_and_ignores_thresholds() -> None:
    nodes = [overview(1), overview(2)]
    link, number = compact_nodes_link(HERE, nodes)
    assert urlsplit(link).path == "/locations/compaction_pipeline/jobs/compact_job/playground/setup"
    assert number == 2
    assert config_of(link) == {"type": "MAJOR", "force": True, "node_keys": [node.key for node in nodes]}


def test_the_link_of_a_table_names_the_table() -> None:
    assert config_of(compact_table_link(HERE, table("orders"))) == {"tables": ["lake.shop.orders"]}


@pytest.mark.parametrize("name", ["a b", "a&b=c", "täglich", 'quote"d', "back\\slash", "50%", "yes", "# no comment"])
def test_any_name_survives_the_address_and_the_yaml(name: str) -> None:
    assert config_of(compact_table_link(HERE, table(name))) == {"tables": [f"lake.shop.{name}"]}


def test_a_line_end_in_a_name_ends_neither_the_link_nor_its_line() -> None:
    (line,) = links([], [table("a\nb\t[c]")])
    assert line.startswith(r"- [Compact what is due in lake.shop.a\\nb\\t\[c\]](/locations/")


def test_a_named_repository_is_part_of_the_address() -> None:
    assert Place("data platform", "ours").path == "/locations/ours%40data%20platform"


def test_a_link_never_gets_too_long_and_says_how_many_nodes_it_has() -> None:
    nodes = [overview(number, table=TableIdentifier("lake", ("shop",), "t" * 400)) for number in range(1, 26)]
    link, number = compact_nodes_link(HERE, nodes)
    assert len(link) <= MOST_CHARACTERS
    assert config_of(link)["node_keys"] == [node.key for node in nodes[:number]]
    assert 10 < number < 25


def test_healthy_tables_and_nodes_that_cannot_gain_get_no_link() -> None:
    alone = overview(3, data_files=1, small_data_files=1)
    refused = overview(4, HealthStatus.REFUSED)
    healthy, due, worse = table("healthy", HealthStatus.HEALTHY), table("due"), table("worse", small_files=9)
    nodes, first, second = links([overview(1), alone, refused], [healthy, due, worse])
    assert "Compact the 1 worst node now" in nodes
    assert config_of(nodes.partition("](")[2].partition(")")[0])["node_keys"] == [overview(1).key]
    assert "Compact what is due in lake.shop.worse" in first
    assert "Compact what is due in lake.shop.due" in second
    assert links([alone], [healthy]) == []


def test_a_node_below_its_thresholds_gets_a_link_too() -> None:
    (line,) = links([overview(1, HealthStatus.HEALTHY)], [])
    assert config_of(line.partition("](")[2].partition(")")[0])["node_keys"] == [overview(1).key]


def test_a_name_does_not_break_out_of_the_markdown() -> None:
    (line,) = links([], [table("a](http://e) [b_c")])
    assert r"a\](http://e) \[b\_c](/locations" in line


def test_links_say_what_they_run_and_how_much_is_due() -> None:
    nodes, due = links([overview(1)], [table("due")])
    assert nodes.endswith(" in one run: a forced MAJOR")
    assert due.endswith(" 2 of 4 nodes, each by its triggers")


def test_the_link_of_a_tree_node_says_that_it_takes_the_partition() -> None:
    plain = overview(1)
    keyed = replace(plain, node=replace(plain.node, tree=DataTreeNode(3, 2)))
    lines = str(links_by_purpose(HERE, [plain, keyed], [])["compact_one_node"].value).splitlines()
    assert [line.strip() for line in lines if line.endswith("MAJOR")] == ["a forced MAJOR", "its partition: a forced MAJOR"]


def test_a_table_in_which_nothing_is_due_gets_no_link() -> None:
    waiting = replace(table("waiting", HealthStatus.WAITING), due=0)
    assert links([], [waiting]) == []
    assert links_by_purpose(HERE, [], [waiting])["compact_what_is_due"].value == "Nothing is due."


def test_the_first_links_are_short_enough_to_be_shown_at_once() -> None:
    nodes = [overview(number) for number in range(1, 29)]
    entries = links_by_purpose(HERE, nodes, [table(f"orders_{number}") for number in range(30)])
    assert list(entries) == ["compact_worst", "compact_one_node", "compact_what_is_due", "pause_a_table", "compact_more"]
    for name in ("compact_worst", "compact_one_node", "compact_what_is_due", "pause_a_table"):
        assert is_shown_at_once(str(entries[name].value))
    worst = str(entries["compact_worst"].value)
    assert len(config_of(worst.partition("](")[2].partition(")")[0])["node_keys"]) >= 8
    assert "more tables" in str(entries["compact_what_is_due"].value)


def test_what_found_no_room_follows_behind_the_button_and_nothing_is_listed_twice() -> None:
    nodes = [overview(number) for number in range(1, 21)]
    tables = [table(f"orders_{number:02}") for number in range(30)]
    entries = {name: str(entry.value) for name, entry in links_by_purpose(HERE, nodes, tables).items()}
    (shown,) = re.findall(r"\[Compact (\d+) of the 20 worst nodes now\]", entries["compact_worst"])
    assert 8 <= int(shown) < 20
    assert entries["compact_more"].startswith("- [Compact the 20 worst nodes now](")
    listed = [re.findall(r"lake\.shop\.orders\\_\d+", entries[name]) for name in ("compact_what_is_due", "compact_more")]
    assert len(listed[0]) + len(listed[1]) == len({*listed[0], *listed[1]}) == 20
    assert entries["compact_more"].endswith("- and 10 more tables")
    assert "compact_more" not in links_by_purpose(HERE, nodes[:2], tables[:1])


def node_links(nodes: Sequence[NodeOverview]) -> list[tuple[str, dict[str, Any]]]:
    """The text of each link of a single node, and the configuration that it fills in."""
    entries = links_by_purpose(HERE, nodes, [])
    found = [re.findall(r"\[Compact (lake[^]]*)\]\(([^)]*)\)", str(entries[name].value)) for name in entries if name != "compact_worst"]
    return [(text.replace("\\\n  ", " "), config_of(link)) for each in found for text, link in each]


def test_each_of_the_20_worst_nodes_has_a_link_of_its_own() -> None:
    nodes = [overview(number) for number in range(1, 29)]
    shown = node_links(nodes)
    assert [text for text, _ in shown] == [f"lake.shop.orders day=2026-01-{number:02}" for number in range(1, 21)]
    assert [config for _, config in shown] == [{"type": "MAJOR", "force": True, "node_keys": [node.key]} for node in nodes[:20]]
    entries = links_by_purpose(HERE, nodes, [])
    assert str(entries["compact_one_node"].value).endswith(" a forced MAJOR\n- and 26 more nodes")
    assert str(entries["compact_more"].value).endswith("- and 8 more nodes")
    assert "compact_one_node" not in links_by_purpose(HERE, [overview(3, data_files=1, small_data_files=1)], [])


def test_links_of_nodes_with_the_longest_keys_do_not_make_the_event_too_large() -> None:
    long = [overview(number, table=TableIdentifier("lake", ("shop",), "ä" * 300)) for number in range(1, 21)]
    # A key has at most 512 bytes, and an address needs up to 9 characters for 3 of them.
    nodes = [replace(node, key="\u4e00" * 166 + f"-{number}") for number, node in enumerate(long)]
    entries = {name: str(entry.value) for name, entry in links_by_purpose(HERE, nodes, []).items()}
    assert 3 < len(node_links(nodes)) < 20
    assert "more nodes" in entries["compact_more"]
    assert sum(map(len, entries.values())) < 30_000


def test_a_long_name_does_not_reach_the_edge_of_its_column() -> None:
    long = table("a" * 80)
    entries = links_by_purpose(HERE, [overview(table=long.table)], [long])
    for name in ("compact_one_node", "compact_what_is_due", "pause_a_table"):
        texts = re.sub(r"\]\([^)]*\)", "", str(entries[name].value)).splitlines()
        assert max(map(len, texts)) <= LINE
        assert "lake.shop." in str(entries[name].value)


@pytest.mark.parametrize(("paused", "job"), [(False, "pause"), (True, "resume")])
def test_a_link_pauses_a_table_or_resumes_it(paused: bool, job: str) -> None:
    link = pause_table_link(HERE, replace(table("orders"), paused=paused))
    assert urlsplit(link).path == f"/locations/compaction_pipeline/jobs/{job}_job/playground/setup"
    (text,) = parse_qs(urlsplit(link).query)["config"]
    assert PauseConfig(**yaml.safe_load(text)["ops"][job]["config"]).tables == ["lake.shop.orders"]
