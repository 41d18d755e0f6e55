"""What operators do over HTTP: look at tasks and steer them, plan, compact, pause and resume a table, and cancel an optimizer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.api.merges import merged, planned
from compaction_pipeline_tests.api.served import Served, Worker

TABLE = "/api/v1/tables/lake.db.t"


def get(served: Served, path: str, status: int = 200, **more: Any) -> Any:
    answer = served.ask("GET", path, served.token(Role.READER), **more)
    assert answer.status_code == status, answer.text
    return answer.json()


def post(served: Served, path: str, status: int = 200, **more: Any) -> Any:
    answer = served.ask("POST", path, served.token(Role.ADMIN), **more)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def test_tasks_are_listed_newest_first_and_by_status(served: Served) -> None:
    [first] = planned(served)
    # Tasks of one moment have the order of their ids, which are random.
    served.house.pass_time(1)
    [second] = planned(served, name="u")
    served.registered().poll()
    assert [task["task"] for task in get(served, "/api/v1/tasks", params={"status": "EXECUTING"})] == [first]
    assert {task["task"] for task in get(served, "/api/v1/tasks")} == {first, second}
    assert [task["task"] for task in get(served, "/api/v1/tasks", params={"table": "lake.db.u"})] == [second]
    assert len(get(served, "/api/v1/tasks", params={"limit": 1})) == 1
    assert get(served, "/api/v1/tasks", params={"table": "lake.db.t", "status": "FAILED"}) == []
    assert "nope" in get(served, "/api/v1/tasks", 404, params={"table": "lake.db.nope"})["detail"]
    both = get(served, "/api/v1/tasks", params={"status": ["PENDING", "EXECUTING"]})
    assert {task["status"] for task in both} == {"PENDING", "EXECUTING"}


def test_a_task_tells_the_times_and_the_ends_of_its_attempts(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    [running] = get(served, f"/api/v1/tasks/{task_id}")["attempts"]
    assert (running["owner"], running["ended_at"], running["end_reason"]) == (worker.optimizer_id, None, None)
    began = served.house.now
    served.house.pass_time(20)
    assert worker.complete(assignment["task"]["attempt_id"], merged(assignment)).status_code == 200
    task = get(served, f"/api/v1/tasks/{task_id}")
    [attempt] = task["attempts"]
    assert (attempt["number"], attempt["end_reason"], task["status"]) == (1, "MERGED", "PREPARED")
    assert (attempt["started_at"], attempt["ended_at"]) == tuple(
        moment.isoformat().replace("+00:00", "Z") for moment in (began, began + timedelta(seconds=20))
    )


def test_an_attempt_names_its_spark_application_and_links_to_it_where_an_address_is_configured(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    path = f"/api/v1/optimizers/{worker.optimizer_id}/touch"
    touched = served.ask("POST", path, worker.token, json={"running": [], "application": "app-20261125021615-0007"})
    assert touched.status_code == 200
    worker.poll()
    [optimizer] = get(served, "/api/v1/optimizers")
    [attempt] = get(served, f"/api/v1/tasks/{task_id}")["attempts"]
    assert (optimizer["application"], attempt["application"]) == ("app-20261125021615-0007",) * 2
    assert attempt["application_url"] is None


def test_a_running_attempt_shows_what_its_own_optimizer_tells_and_nobody_else(served: Served) -> None:
    [task_id] = planned(served)
    worker, other = served.registered(cores=2.0), served.registered(cores=2.0)
    [assignment] = worker.poll()
    attempt = assignment["task"]["attempt_id"]

    def told(by: Worker, running: list[str], used: object) -> int:
        body = {"running": running, "used": used}
        return int(served.ask("POST", f"/api/v1/optimizers/{by.optimizer_id}/touch", by.token, json=body).status_code)

    def shown() -> tuple[object, object, object]:
        [found] = get(served, f"/api/v1/tasks/{task_id}")["attempts"]
        return found["cpu_seconds"], found["peak_memory_bytes"], found["is_cut"]

    served.house.pass_time(10)
    assert shown() == (None, None, False)
    figures = {"cpu_ms": 2_500, "peak_memory_bytes": 70}
    assert told(other, [attempt], {attempt: figures}) == 200
    assert shown() == (None, None, False)
    # What is said of an attempt that does not run any more is not heard, and costs the heartbeat nothing.
    assert told(worker, [attempt], {"unknown": figures}) == 200
    assert shown() == (None, None, False)
    for wrong in ([], {attempt: {"cpu_ms": -1, "peak_memory_bytes": 1}}, {attempt: {"cpu_ms": 1}}, {attempt: {**figures, "more": 1}}):
        assert told(worker, [attempt], wrong) == 422
    assert told(worker, [attempt], {attempt: figures}) == 200
    assert shown() == (2.5, 70, False)
    assert told(worker, [attempt], {attempt: {"cpu_ms": 2**60, "peak_memory_bytes": 80}}) == 200
    assert shown() == (20.0, 80, True)


@pytest.mark.parametrize("application", ["a" * 101, "app\n7", "app-\x1b[31m", "../../etc", "<script>", 'a"b', "é", 7])
def test_an_id_that_no_application_of_spark_has_is_refused_and_not_stored(served: Served, application: object) -> None:
    worker = served.registered()
    path = f"/api/v1/optimizers/{worker.optimizer_id}/touch"
    assert served.ask("POST", path, worker.token, json={"running": [], "application": application}).status_code == 422
    [optimizer] = get(served, "/api/v1/optimizers")
    assert optimizer["application"] == ""


def test_a_failed_task_is_tried_again_and_a_waiting_one_is_canceled(served: Served) -> None:
    [task_id] = planned(served)
    tasks, now = served.house.services.stores.tasks, served.house.now
    taken = tasks.poll(None, "worker", now, timedelta(seconds=60))
    assert taken is not None
    failure = MergeResult(task_id, taken.current_attempt_id, end_reason=EndReason.FAILED, error="no")
    assert tasks.complete(failure, now, timedelta(seconds=60)) is TaskStatus.FAILED
    assert post(served, f"/api/v1/tasks/{task_id}/retry")["status"] == "PENDING"
    again = post(served, f"/api/v1/tasks/{task_id}/retry", 400)
    assert "only a task that failed and waits to be tried again" in again["detail"]
    assert post(served, f"/api/v1/tasks/{task_id}/cancel")["status"] == "CANCELED"


def test_a_running_task_is_canceled_only_when_the_request_says_so(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    assert "waits can be canceled" in post(served, f"/api/v1/tasks/{task_id}/cancel", 400)["detail"]
    assert post(served, f"/api/v1/tasks/{task_id}/cancel", params={"running": "true"})["status"] == "CANCELED"
    assert worker.touch(assignment["task"]["attempt_id"])["lost"] == [assignment["task"]["attempt_id"]]


def test_an_unknown_task_and_an_unknown_table_are_not_found(served: Served) -> None:
    for path in ("/api/v1/tasks/no/retry", "/api/v1/tasks/no/cancel", f"{TABLE}/compact", f"{TABLE}/pause", f"{TABLE}/resume"):
        post(served, path, 404)
    for path in ("/api/v1/tasks/no", f"{TABLE}/plan"):
        assert served.ask("GET", path, served.token(Role.READER)).status_code == 404
    post(served, "/api/v1/tables/t/pause", 400)


def test_a_plan_shows_what_would_be_done_and_queues_nothing(served: Served) -> None:
    served.house.services.refresh_files.refresh(served.house.fragmented().identifier)
    made = get(served, f"{TABLE}/plan")
    assert (made["code"], len(made["tasks"]), made["predicted_files"]) == ("PLANNED", 1, 1)
    assert made["nodes"][0]["reason"] == "12 small data files, and 12 make a MINOR due"
    assert get(served, f"{TABLE}/plan", params={"type": "FULL"})["tasks"][0]["type"] == "FULL"
    assert get(served, f"{TABLE}/plan", params={"node": "unpartitioned"})["tasks"]
    assert get(served, "/api/v1/tasks") == []
    post(served, f"{TABLE}/pause")
    assert get(served, f"{TABLE}/plan")["tasks"]
    unknown = served.ask("GET", f"{TABLE}/plan", served.token(Role.READER), params={"node": "day=1"})
    assert (unknown.status_code, unknown.json()["reason_code"]) == (404, "NOT_FOUND")


def test_a_compaction_reads_the_table_and_queues_tasks_that_go_first(served: Served) -> None:
    planned(served, name="u")
    served.house.fragmented()
    asked = post(served, f"{TABLE}/compact", 202)
    assert (asked["code"], asked["reason"].startswith("1 task on 1 node")) == ("PLANNED", True)
    [assignment] = served.registered().poll()
    assert [assignment["task"]["task_id"]] == asked["tasks"]
    assert post(served, f"{TABLE}/compact", 202)["tasks"] == []


def test_a_paused_table_is_not_compacted_before_it_is_resumed(served: Served) -> None:
    served.house.fragmented()
    assert post(served, f"{TABLE}/pause") == {"table": "lake.db.t", "paused": True, "changed": True}
    assert not post(served, f"{TABLE}/pause")["changed"]
    refused = post(served, f"{TABLE}/compact", 409)
    assert (refused["reason_code"], refused["title"]) == ("PAUSED", "The table is paused")
    assert "a person paused it" in refused["detail"]
    assert "`compaction-pipeline resume lake.db.t`" in refused["detail"]
    assert "`POST /api/v1/tables/lake.db.t/resume`" in refused["detail"]
    assert post(served, f"{TABLE}/resume") == {"table": "lake.db.t", "paused": False, "changed": True}
    assert post(served, f"{TABLE}/compact", 202)["tasks"]


@pytest.mark.parametrize("role", [Role.READER, Role.WRITER, Role.OPTIMIZER])
def test_only_an_admin_steers(served: Served, role: Role) -> None:
    paths = ["tasks/x/retry", "tasks/x/cancel", "tables/a.b.c/compact", "tables/a.b.c/pause", "tables/a.b.c/resume", "optimizers/x/cancel"]
    for path in paths:
        assert served.ask("POST", f"/api/v1/{path}", served.token(role)).status_code == 403
    for path in ("tasks", "tasks/x", "tables/a.b.c/plan"):
        assert (served.ask("GET", f"/api/v1/{path}", served.token(role)).status_code == 403) is (role is not Role.READER)


def test_the_tasks_of_a_canceled_optimizer_wait_at_once_and_it_cannot_go_on(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    post(served, f"/api/v1/optimizers/{worker.optimizer_id}/cancel", 204)
    services = served.house.services
    assert services.stores.tasks.task(task_id).status is TaskStatus.PENDING
    [attempt] = services.stores.tasks.attempts(task_id)
    assert (attempt.end_reason, attempt.reason) == (EndReason.INTERRUPTED, f"optimizer {worker.optimizer_id}: a person canceled it")
    for path, body in (("touch", {"running": []}), ("poll", {"poll_id": "p2"})):
        answer = served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/{path}", worker.token, json=body)
        # With "not found" it would register anew.
        assert (answer.status_code, "a person canceled" in answer.text) == (400, True)
    assert worker.complete(assignment["task"]["attempt_id"], merged(assignment)).status_code == 409
    # Another one takes the task, and nobody cancels the first one a second time.
    assert len(served.registered().poll()) == 1
    post(served, f"/api/v1/optimizers/{worker.optimizer_id}/cancel", 404)


def figures(served: Served) -> dict[str, float]:
    lines = served.ask("GET", "/metrics", served.token(Role.READER)).text.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}


def test_metrics_tell_of_queues_attempts_merged_bytes_and_commits(served: Served) -> None:
    [first, second] = (planned(served, name=name)[0] for name in ("t", "u"))
    served.house.pass_time(30)
    before = figures(served)
    of_queue = '{group="default",queue="default"'
    assert before[f'compaction_queue_tasks{of_queue},state="waiting"}}'] == 2
    assert before[f"compaction_queue_oldest_wait_seconds{of_queue}}}"] == 30
    assert before['compaction_merged_bytes_total{queue="default"}'] == 0
    worker = served.registered()
    [assignment] = worker.poll()
    worker.complete(assignment["task"]["attempt_id"], merged(assignment) | {"cpu_ms": 2_500})
    assert len(list(served.house.services.commit_due.commit())) == 1
    worker.poll("p2")
    served.house.pass_time(6)
    # A scrape counts nothing twice.
    for found in (figures(served), figures(served)):
        assert found[f'compaction_queue_tasks{of_queue},state="running"}}'] == 1
        assert found['compaction_attempts_total{end_reason="MERGED",queue="default"}'] == 1
        size = served.house.services.stores.tasks.task(first).work.input_bytes
        assert found['compaction_merged_bytes_total{queue="default"}'] == size
        # The house's clock stands still while the optimizer merges, so nothing of what it says can be true.
        assert found['compaction_cpu_seconds_total{queue="default"}'] == 0
        assert found['compaction_commits_total{outcome="COMMITTED"}'] == 1
        assert found['compaction_refused_reports_total{queue="default"}'] == 0
        assert found["compaction_poll_duration_seconds_count"] == 2
        assert found["compaction_report_duration_seconds_count"] == 1
    assert second != first
