"""The pages of queues and optimizers: the sensor tells what has changed, and nothing at rest."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import dagster as dg
import pytest

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.group import CompactionQueue, ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState, Registration
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.defs.queues import _in_words
from compaction_pipeline.services.insight.read_queues import Queues
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import COMPACTION_QUEUES, OPTIMIZERS


def told(result: dg.SensorResult) -> dict[dg.AssetKey, dict[str, object]]:
    """The metadata of the events of a tick, by asset."""
    events = [event for event in result.asset_events if isinstance(event, dg.AssetMaterialization)]
    return {event.asset_key: {name: value.value for name, value in event.metadata.items()} for event in events}


def plain_text(markdown: object) -> str:
    return str(markdown).replace("\\\n", " ").replace("\\", "")


def registered(services: OpenedServices, group: str = "default") -> str:
    services.stores.groups.add(ResourceGroup(group))
    made = services.serve_optimizers.register(Registration(group, "host-1", "77", "1.0", MERGE_VERSION, 3, resource_id="pod-1"))
    return made.optimizer_id


def test_a_group_without_tasks_and_optimizers_is_shown_too(services: OpenedServices, tick: Tick) -> None:
    services.stores.groups.add(ResourceGroup("heavy"))
    first = tick("queue_sensor")
    assert reason(first) == "0 waiting tasks in 2 groups, 0 serving optimizers"
    shown = told(first)
    assert list(shown) == [COMPACTION_QUEUES]
    assert "heavy nothing waits; 0 running; 0 of 10,000 places taken" in " ".join(
        plain_text(shown[COMPACTION_QUEUES]["queues_now"]).replace("**", "").split()
    )
    assert shown[COMPACTION_QUEUES]["heavy waiting_tasks_count"] == 0
    assert told(tick("queue_sensor", first.cursor)) == {}
    services.stores.groups.add(ResourceGroup("light"))
    assert "light slots_count" in told(tick("queue_sensor", first.cursor))[COMPACTION_QUEUES]


@pytest.mark.parametrize(("pending", "words"), [(0, "nothing waits to be merged; 0 running"), (3, "3 waiting tasks, the first for 5")])
def test_merged_tasks_that_wait_for_the_commit_are_told(pending: int, words: str) -> None:
    at = datetime(2026, 11, 23, tzinfo=timezone.utc)
    work = QueueWork("heavy", pending=pending, prepared=23, waiting_since=at - timedelta(seconds=5))
    text = " ".join(plain_text(_in_words(work, Queues(at, (work,), {}, (), {}, {}))).split())
    assert words in text
    assert "0 running; 23 merged tasks waiting for the commit; its group does not exist" in text


def test_a_queue_is_shown_when_it_changes_and_nothing_is_told_at_rest(services: OpenedServices, tick: Tick) -> None:
    services.one_table.plan_nodes(Lake.identifier, PlanRequest())
    first = tick("queue_sensor")
    figures = told(first)[COMPACTION_QUEUES]
    assert figures["default waiting_tasks_count"] == 2
    assert figures["default slots_count"] == 0
    assert "2 waiting tasks" in plain_text(figures["queues_now"])
    assert "runs of compact" in plain_text(figures["queues_now"])
    assert "2 of 10,000 places taken" in plain_text(figures["queues_now"])
    assert told(tick("queue_sensor", first.cursor)) == {}
    services.manage_groups.change(ResourceGroup("default", queue=CompactionQueue(50)))
    changed = tick("queue_sensor", first.cursor)
    assert "2 of 50 places taken" in plain_text(told(changed)[COMPACTION_QUEUES]["queues_now"])
    (event,) = (event for event in changed.asset_events if event.asset_key == COMPACTION_QUEUES)
    table = event.metadata["groups"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [(row.data["capacity"], row.data["order"]) for row in table.records] == [(50, "priority")]
    services.work_on_queue.drain("test")
    after = told(tick("queue_sensor", first.cursor))[COMPACTION_QUEUES]
    assert (after["default waiting_tasks_count"], after["default merged_tasks_per_minute"]) == (0, 0.2)


def test_an_optimizer_is_shown_with_its_slots_and_what_became_of_it(services: OpenedServices, tick: Tick) -> None:
    optimizer = registered(services, "heavy")
    first = tick("queue_sensor")
    shown = told(first)
    assert shown[COMPACTION_QUEUES]["heavy slots_count"] == 3
    assert (shown[OPTIMIZERS]["serving_optimizers_count"], shown[OPTIMIZERS]["slots_count"]) == (1, 3)
    (event,) = (event for event in first.asset_events if event.asset_key == OPTIMIZERS)
    table = event.metadata["optimizers"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [(row.data["optimizer"], row.data["state"], row.data["slots"]) for row in table.records] == [(optimizer, "RUNNING", 3)]
    services.serve_optimizers.leave(optimizer)
    ended = told(tick("queue_sensor", first.cursor))[OPTIMIZERS]
    assert "ENDED: " in plain_text(ended["optimizers_now"])
    assert (ended["serving_optimizers_count"], ended["slots_count"]) == (0, 0)


def test_what_an_optimizer_merged_is_shown_although_it_merges_nothing_at_the_moment(services: OpenedServices, tick: Tick) -> None:
    optimizer = registered(services)
    before = tick("queue_sensor")
    services.one_table.plan_nodes(Lake.identifier, PlanRequest())
    services.work_on_queue.drain(optimizer)
    result = tick("queue_sensor", before.cursor)
    page = told(result)[OPTIMIZERS]
    assert "merged 2 tasks (" in plain_text(page["optimizers_now"])
    assert "in the last 10 min; now merges 0 tasks on 3 slots" in plain_text(page["optimizers_now"])
    assert (page["running_tasks_count"], page["merged_tasks_per_minute"]) == (0, 0.2)
    assert page["merged_mb_per_minute"] == told(result)[COMPACTION_QUEUES]["default merged_mb_per_minute"] > 0
    (event,) = (event for event in result.asset_events if event.asset_key == OPTIMIZERS)
    table = event.metadata["optimizers"]
    assert isinstance(table, dg.TableMetadataValue)
    assert [row.data["merged_lately"] for row in table.records] == [2]
    assert OPTIMIZERS not in told(tick("queue_sensor", result.cursor)), "nothing is told at rest"


def test_no_run_is_asked_for_while_optimizers_take_what_waits(services: OpenedServices, tick: Tick) -> None:
    registered(services)
    tick("snapshot_sensor")
    planned = tick("fragmentation_sensor")
    assert services.read_tasks.queue_counts().pending == 2
    assert not planned.run_requests
    assert "optimizers serve the queue" in reason(planned)


def test_a_run_is_asked_for_when_the_optimizers_are_of_another_group(services: OpenedServices, tick: Tick) -> None:
    registered(services, "heavy")
    services.one_table.refresh(Lake.identifier)
    assert tick("fragmentation_sensor").run_requests


def test_an_optimizer_that_starts_is_shown_and_so_is_a_container_that_fails(services: OpenedServices, tick: Tick) -> None:
    services.stores.groups.add(ResourceGroup("heavy", "workers"))
    now = services.clock()
    row = Optimizer("o0", "heavy", "here", "", "", 3, now, now, OptimizerState.STARTING, container="workers", why="not registered yet")
    services.stores.optimizers.add(row)
    shown = told(tick("queue_sensor"))
    assert "STARTING: not registered yet; group heavy" in plain_text(shown[OPTIMIZERS]["optimizers_now"])
    assert (shown[OPTIMIZERS]["serving_optimizers_count"], shown[COMPACTION_QUEUES]["heavy slots_count"]) == (0, 0)
    for number in range(3):
        services.stores.optimizers.add(replace(row, optimizer_id=f"lost{number}", state=OptimizerState.LOST, why="no token"))
    shown = told(tick("queue_sensor"))
    assert "failed to start 3 optimizers in a row; the last time: no token" in plain_text(shown[COMPACTION_QUEUES]["queues_now"])
