"""Which nodes become partitions, and which partitions retire."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.defs.partitions import CHUNK, additions, keys_between, needs_care, retirement
from compaction_pipeline_tests.defs.values import NOW, ago, overview
from compaction_pipeline_tests.plain_names import NAMES


def test_only_new_keys_are_added_sorted_and_in_chunks() -> None:
    wanted = [f"k{number:06}" for number in range(CHUNK + 5)]
    requests = additions(NAMES.table_nodes, reversed(wanted), ["k000000", "other"])
    assert [len(request.partition_keys) for request in requests] == [CHUNK, 4]
    assert [key for request in requests for key in request.partition_keys] == wanted[1:]


def test_the_number_of_partitions_is_limited_for_the_ui() -> None:
    assert [list(request.partition_keys) for request in additions(NAMES.table_nodes, ["c", "b"], ["a"], most=2)] == [["b"]]
    assert additions(NAMES.table_nodes, ["c"], ["a", "b"], most=2) == []


@pytest.mark.parametrize(
    ("health", "care"),
    [
        (HealthStatus.DUE, True),
        (HealthStatus.WAITING, True),
        (HealthStatus.FAILING, True),
        (HealthStatus.HEALTHY, False),
        (HealthStatus.REFUSED, False),
    ],
)
def test_a_node_becomes_a_partition_when_it_needs_a_compaction(health: HealthStatus, care: bool) -> None:
    assert needs_care(overview(1, health)) is care


def test_healthy_and_quiet_nodes_and_nodes_that_are_gone_retire() -> None:
    quiet = overview(1, HealthStatus.HEALTHY)
    busy = replace(overview(2, HealthStatus.HEALTHY), last_done={CompactionType.MINOR: ago(days=6)})
    due = overview(3, HealthStatus.DUE)
    known = [quiet.key, busy.key, due.key, "gone"]
    assert retirement(known, [quiet, busy, due], frozenset(), NOW) == sorted([quiet.key, "gone"])
    assert busy.key in retirement(known, [quiet, busy, due], frozenset(), NOW + timedelta(days=2))


def test_a_node_that_a_run_carries_never_retires() -> None:
    quiet = overview(1, HealthStatus.HEALTHY)
    assert retirement([quiet.key, "gone"], [quiet], frozenset({quiet.key, "gone"}), NOW) == []


def test_a_range_whose_end_is_gone_carries_every_key() -> None:
    assert keys_between(["a", "b", "c", "d"], "b", "c") == ["b", "c"]
    assert keys_between(["a", "b"], "a", "z") == ["a", "b"]
