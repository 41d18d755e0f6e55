"""`task list | show | retry | cancel`: what a person sees of tasks, and what they may change."""

from __future__ import annotations

from datetime import timedelta

import pytest

from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.work.result import UsedSoFar
from compaction_pipeline.settings import load_settings
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import NOW, TABLE
from compaction_pipeline_tests.cli.conftest import Desk

MINUTE = timedelta(minutes=1)


@pytest.fixture
def stores(desk: Desk) -> Stores:
    """The state of the desk, with tasks in every status. "waits" failed and waits to be tried again; "failed" failed for good."""
    assert desk.json("status")
    stores = open_stores(load_settings().state_database_url)
    names = ("pending", "executing", "prepared", "waits", "failed", "canceled")
    stores.tasks.insert([example(name, max_attempts=1 if name == "failed" else 4) for name in names], [], NOW)
    taken: dict[str, CompactionTask] = {}
    for name in names[1:5]:
        polled = stores.tasks.poll(None, "worker", NOW, LEASE, [name])
        assert polled is not None
        taken[name] = polled
    stores.tasks.complete(prepared(taken["prepared"]), NOW + MINUTE)
    for name in ("waits", "failed"):
        stores.tasks.complete(failed(taken[name]), NOW + MINUTE, MINUTE)
    assert desk.type("task", "cancel", "canceled").exit_code == 0
    return stores


def test_open_tasks_are_listed_with_their_times(desk: Desk, stores: Stores) -> None:
    found = {task["task"]: task for task in desk.json("task", "list")}
    assert set(found) == {"pending", "executing", "prepared", "waits"}
    waits = found["waits"]
    assert (waits["status"], waits["reason_code"], waits["failures"], waits["max_attempts"]) == ("FAILED", "FAILED", 1, 4)
    assert (waits["failed_at"], waits["retry_at"]) == ((NOW + MINUTE).isoformat(), (NOW + 2 * MINUTE).isoformat())
    assert (waits["table"], waits["queue"], waits["ended_at"], waits["prepared_at"]) == (str(TABLE), "default", None, None)
    assert found["prepared"]["prepared_at"] == (NOW + MINUTE).isoformat()
    assert "waits" in desk.type("task", "list", str(TABLE)).stdout
    unknown = desk.type("task", "list", "lake.shop.other")
    assert (unknown.exit_code, unknown.stdout, unknown.stderr) == (2, "", desk.type("record", "list", "lake.shop.other").stderr)


def test_ended_tasks_are_listed_by_their_status(desk: Desk, stores: Stores) -> None:
    assert {task["task"] for task in desk.json("task", "list", "--status", "FAILED")} == {"waits", "failed"}
    assert [task["task"] for task in desk.json("task", "list", "--status", "CANCELED")] == ["canceled"]
    assert len(desk.json("task", "list", "--status", "FAILED", "--status", "PENDING", "-n", "2")) == 2


def test_a_task_is_shown_with_its_attempts(desk: Desk, stores: Stores) -> None:
    shown = desk.json("task", "show", "waits")
    (attempt,) = shown["attempts"]
    assert (attempt["number"], attempt["owner"], attempt["end_reason"]) == (1, "worker", "FAILED")
    text = desk.type("task", "show", "waits").stdout
    assert "retry at" in text
    assert "footer unreadable" in text
    assert "committed at" not in text
    unknown = desk.type("task", "show", "nothing")
    assert unknown.exit_code == 2
    assert "'nothing' is not known" in unknown.stderr


def test_a_task_shows_what_its_attempts_have_used(desk: Desk, stores: Stores) -> None:
    taken = stores.tasks.poll(None, "worker", NOW, LEASE, ["pending"])
    assert taken is not None
    assert "attempt 1 used" not in desk.type("task", "show", "pending").stdout
    stores.tasks.renew([taken.current_attempt_id], NOW + MINUTE, LEASE, {taken.current_attempt_id: UsedSoFar(2_500, 70_000_000)})
    assert "attempt 1 used 2.5 s of CPU and at most 70.0 MB of memory until now" in desk.type("task", "show", "pending").stdout
    (attempt,) = desk.json("task", "show", "pending")["attempts"]
    assert (attempt["cpu_seconds"], attempt["peak_memory_bytes"], attempt["is_cut"]) == (2.5, 70_000_000, False)


def test_a_task_shows_the_spark_application_of_an_attempt_and_its_page(desk: Desk, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    assert stores.tasks.poll(None, "worker", NOW, LEASE, ["pending"], application="app-7") is not None
    assert "attempt 1 ran in Spark application app-7" in desk.type("task", "show", "pending").stdout
    assert desk.json("task", "show", "pending")["attempts"][0]["application_url"] is None
    monkeypatch.setenv("COMPACTION_SPARK_APPLICATION_URL", "https://history/{application}/jobs/")
    assert desk.json("task", "show", "pending")["attempts"][0]["application_url"] == "https://history/app-7/jobs/"
    assert "app-7: https://history/app-7/jobs/" in desk.type("task", "show", "pending").stdout
    assert desk.json("task", "show", "waits")["attempts"][0]["application_url"] is None


def test_a_waiting_failed_task_is_tried_again_at_once(desk: Desk, stores: Stores) -> None:
    (task,) = desk.json("task", "retry", "waits")
    assert (task["status"], task["retry_at"]) == ("PENDING", None)
    assert stores.tasks.poll(None, "worker", NOW, LEASE, ["waits"]) is not None


@pytest.mark.parametrize(
    ("verb", "name", "what"),
    [
        ("retry", "failed", "task failed is FAILED for good"),
        ("retry", "pending", "task pending is PENDING"),
        ("cancel", "executing", "task executing is EXECUTING"),
        ("cancel", "prepared", "task prepared is PREPARED"),
        ("cancel", "canceled", "task canceled is CANCELED"),
    ],
)
def test_a_task_that_cannot_be_changed_is_named_and_no_task_is_changed(desk: Desk, stores: Stores, verb: str, name: str, what: str) -> None:
    before = stores.tasks.tasks()
    refused = desk.type("task", verb, "waits", name)
    assert refused.exit_code == 2
    assert what in refused.stderr
    assert stores.tasks.tasks() == before


def test_waiting_tasks_are_canceled(desk: Desk, stores: Stores) -> None:
    canceled = desk.json("task", "cancel", "waits", "pending")
    assert [(task["task"], task["status"], task["reason"]) for task in canceled] == [
        ("waits", "CANCELED", "a person canceled the task"),
        ("pending", "CANCELED", "a person canceled the task"),
    ]
    assert stores.tasks.in_use(TABLE).pending == {}


def test_a_running_task_is_canceled_when_that_is_asked_for(desk: Desk, stores: Stores) -> None:
    canceled = desk.json("task", "cancel", "--running", "executing", "pending")
    assert [(task["task"], task["status"]) for task in canceled] == [("executing", "CANCELED"), ("pending", "CANCELED")]
    refused = desk.type("task", "cancel", "--running", "prepared")
    assert (refused.exit_code, "task prepared is PREPARED: only a task that waits or runs" in refused.stderr) == (2, True)
