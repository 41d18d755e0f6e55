"""Optimizers over HTTP: they take tasks, report them, and every answer may get lost."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from compaction_pipeline.api.optimizers import _REPORTS_AT_ONCE
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.ids import TaskId
from compaction_pipeline.core.queue.attempts import MOST_LOSSES
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.services.queue import serve_optimizers
from compaction_pipeline_tests.api.merges import merged, planned
from compaction_pipeline_tests.api.served import REGISTRATION, Served
from compaction_pipeline_tests.reference_reader import local_path


def status(served: Served, task_id: TaskId) -> TaskStatus:
    return served.house.services.stores.tasks.task(task_id).status


def test_a_task_is_taken_merged_reported_and_committed(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    answer = worker.complete(assignment["task"]["attempt_id"], report)
    assert answer.json() == {"status": "PREPARED"}
    assert [record.status.value for record in served.house.services.commit_due.commit()] == ["COMMITTED"]
    assert status(served, task_id) is TaskStatus.COMMITTED


def test_a_repeated_poll_gets_the_same_answer(served: Served) -> None:
    planned(served)
    worker = served.registered()
    [first] = worker.poll("p1")
    [again] = worker.poll("p1")
    assert again["task"]["attempt_id"] == first["task"]["attempt_id"]
    assert worker.poll("p2") == []


def test_an_attempt_that_never_arrived_goes_back_and_one_that_runs_stays(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    attempt = assignment["task"]["attempt_id"]
    served.house.pass_time(14)
    assert worker.touch() == {"lost": [], "drain": False, "why": "", "log_level": "", "stack_request": ""}
    assert status(served, task_id) is TaskStatus.EXECUTING
    served.house.pass_time(1)
    worker.touch(attempt)
    assert status(served, task_id) is TaskStatus.EXECUTING
    worker.touch()
    assert status(served, task_id) is TaskStatus.PENDING
    assert worker.touch(attempt)["lost"] == [attempt]


def test_a_report_that_arrives_twice_is_answered_alike_and_another_one_is_stale(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    attempt, report = assignment["task"]["attempt_id"], merged(assignment)
    assert worker.complete(attempt, report).json() == {"status": "PREPARED"}
    assert worker.complete(attempt, report).json() == {"status": "PREPARED"}
    other = worker.complete(attempt, {**report, "duration_ms": report["duration_ms"] + 1})
    assert other.status_code == 409
    assert status(served, task_id) is TaskStatus.PREPARED


def test_a_report_of_another_optimizer_changes_nothing(served: Served) -> None:
    [task_id] = planned(served)
    worker, other = served.registered(), served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    assert other.complete(assignment["task"]["attempt_id"], report).status_code == 409
    assert status(served, task_id) is TaskStatus.EXECUTING
    assert worker.complete(assignment["task"]["attempt_id"], report).status_code == 200


def test_a_late_report_is_stale_and_deletes_no_file(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    served.house.pass_time(61)
    served.house.services.keep_watch.keep()
    assert status(served, task_id) is TaskStatus.PENDING
    assert worker.complete(assignment["task"]["attempt_id"], report).status_code == 409
    [again] = served.registered().poll()
    assert again["task"]["attempt"] == 2


def _climbing(report: Any) -> None:
    report["outputs"][0]["path"] = report["outputs"][0]["path"].replace("/data/", "/data/../../other/data/")


def _of_an_input(report: Any) -> None:
    report["outputs"][0]["path"] = report["outputs"][0]["path"].replace(report["attempt_id"], "another")


def _too_few(report: Any) -> None:
    report["rows_written"] -= 1


def _too_few_in_the_file(report: Any) -> None:
    report["outputs"][0]["record_count"] -= 1


def _another_proof(report: Any) -> None:
    report["digest_written"]["sum_a"] += 1


def _another_spec(report: Any) -> None:
    report["outputs"][0]["spec_id"] += 1


def _deletes(report: Any) -> None:
    report["outputs"][0]["content"] = "POSITION_DELETES"


def _twice(report: Any) -> None:
    report["outputs"].append(deepcopy(report["outputs"][0]))


def _nothing_read(report: Any) -> None:
    no_rows = {"rows": 0, "sum_a": 0, "sum_b": 0}
    report.update(outputs=[], rows_read=0, rows_written=0, digest_read=no_rows, digest_written=no_rows)


def _all_deleted_by_equality(report: Any) -> None:
    _nothing_read(report)
    report.update(rows_read=12, rows_deleted_by_equality=12)


def _all_deleted_by_position(report: Any) -> None:
    _nothing_read(report)
    report.update(rows_read=12, rows_deleted_by_position=12)


FALSE = (_nothing_read, _all_deleted_by_equality, _all_deleted_by_position)


@pytest.mark.parametrize(
    "change", [*FALSE, _climbing, _of_an_input, _too_few, _too_few_in_the_file, _another_proof, _another_spec, _deletes, _twice]
)
def test_a_report_that_cannot_be_true_fails_the_attempt(served: Served, change: Any) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    false = deepcopy(report)
    change(false)
    answer = worker.complete(assignment["task"]["attempt_id"], false)
    assert answer.status_code == 422, answer.text
    assert answer.json()["reason_code"] == "MERGE_FAILED"
    [attempt] = served.house.services.stores.tasks.attempts(task_id)
    assert "cannot be true" in (attempt.reason or "")
    assert list(served.house.services.commit_due.commit()) == []
    assert worker.complete(assignment["task"]["attempt_id"], report).status_code == 409


@pytest.mark.parametrize("body", [[], "x", {}, {"task_id": "t"}, {"task_id": 1, "attempt_id": "a"}, None, 1.5])
def test_a_report_that_is_none_is_a_clear_problem(served: Served, body: object) -> None:
    worker = served.registered()
    answer = worker.complete("a", body)
    assert answer.status_code in (400, 404, 422)
    assert answer.json()["detail"]


@pytest.mark.parametrize("left_out", ["outputs", "rows_read", "digest_written", "end_reason", "error"])
def test_a_report_that_leaves_a_field_out_is_no_success(served: Served, left_out: str) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    del report[left_out]
    answer = worker.complete(assignment["task"]["attempt_id"], report)
    assert (answer.status_code, answer.json()["reason_code"]) == (400, "INVALID_INPUT")
    assert left_out in answer.json()["detail"]
    assert status(served, task_id) is TaskStatus.EXECUTING


def test_a_second_report_at_the_same_moment_deletes_no_file_of_the_first(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    attempt = assignment["task"]["attempt_id"]
    optimizers = served.house.services.serve_optimizers
    real = optimizers._queue.complete
    answers: list[int] = []

    def first_the_other(*arguments: Any, **named: Any) -> TaskStatus:
        if not answers:
            answers.append(200)
            # Another process that serves the same database knows nothing of what this one looks at.
            optimizers._judging = serve_optimizers.OneAtATime()
            answers[0] = worker.complete(attempt, report).status_code
        return real(*arguments, **named)

    with mock.patch.object(optimizers._queue, "complete", first_the_other):
        late = worker.complete(attempt, {**report, "duration_ms": report["duration_ms"] + 1})
    assert (answers, late.status_code) == ([200], 409)
    assert status(served, task_id) is TaskStatus.PREPARED
    assert Path(local_path(report["outputs"][0]["path"])).exists()


def test_a_report_that_is_sent_again_while_it_is_looked_at_is_not_looked_at_twice(served: Served) -> None:
    """A client waits 30 s for an answer. A look at a thousand files may take longer, and a second one beside it would delay both."""
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    attempt, report = assignment["task"]["attempt_id"], merged(assignment)
    queue, looks, goes_on = served.house.services.serve_optimizers._queue, threading.Semaphore(0), threading.Event()
    real = queue.judged

    def judged(*arguments: Any, **named: Any) -> MergeResult | None:
        looks.release()
        assert goes_on.wait(60)
        return real(*arguments, **named)

    with mock.patch.object(queue, "judged", judged), ThreadPoolExecutor(1) as sender:
        sent = sender.submit(worker.complete, attempt, report)
        try:
            assert looks.acquire(timeout=60)
            assert worker.complete(attempt, report).json() == {"status": "EXECUTING"}
        finally:
            goes_on.set()
        assert sent.result().json() == {"status": "PREPARED"}
    assert not looks.acquire(blocking=False)
    assert worker.complete(attempt, report).json() == {"status": "PREPARED"}
    assert status(served, task_id) is TaskStatus.PREPARED


def test_reports_that_are_looked_at_for_long_delay_no_heartbeat(served: Served) -> None:
    """A minute without a heartbeat costs an optimizer its tasks."""
    planned(served)
    worker, honest = served.registered(), served.registered()
    [assignment] = worker.poll()
    attempt, report = assignment["task"]["attempt_id"], merged(assignment)
    looks, goes_on = threading.Semaphore(0), threading.Event()

    def looked_at(*arguments: Any) -> TaskStatus:
        looks.release()
        assert goes_on.wait(60)
        return TaskStatus.EXECUTING

    with (
        mock.patch.object(served.house.services.serve_optimizers, "complete", looked_at),
        ThreadPoolExecutor(_REPORTS_AT_ONCE + 4) as senders,
    ):
        sent = [senders.submit(worker.complete, attempt, report) for _ in range(_REPORTS_AT_ONCE + 4)]
        try:
            for _ in range(_REPORTS_AT_ONCE):
                assert looks.acquire(timeout=60)
            beat = threading.Thread(target=honest.touch, daemon=True)
            beat.start()
            beat.join(30)
            assert not beat.is_alive()
        finally:
            goes_on.set()
    assert {each.result().status_code for each in sent} == {200}


def test_a_report_that_is_never_understood_ends_the_task_some_day(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    for number in range(MOST_LOSSES):
        assert status(served, task_id) is TaskStatus.PENDING
        [assignment] = worker.poll(f"p{number}")
        attempt = assignment["task"]["attempt_id"]
        served.house.pass_time(10)
        worker.touch(attempt)
        served.house.pass_time(10)
        assert worker.complete(attempt, {"task_id": task_id, "attempt_id": attempt}).status_code == 400
        worker.touch()
    task = served.house.services.stores.tasks.task(task_id)
    assert task.is_final
    assert task.end_reason is EndReason.LOST


def test_polls_with_one_id_at_the_same_moment_get_the_same_answer(served: Served) -> None:
    planned(served)
    worker = served.registered()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: worker.poll("p1"), range(4)))
    assert len({assignment["task"]["attempt_id"] for [assignment] in answers}) == 1


def test_an_optimizer_that_an_error_ended_has_failed_its_attempts(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    worker.poll()
    assert served.ask("DELETE", f"/api/v1/optimizers/{worker.optimizer_id}?failed=true", worker.token).status_code == 204
    [attempt] = served.house.services.stores.tasks.attempts(task_id)
    assert attempt.end_reason is EndReason.FAILED


def test_an_unknown_field_of_a_report_is_refused(served: Served) -> None:
    planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report = merged(assignment)
    report["outputs"][0]["new_field"] = 1
    answer = worker.complete(assignment["task"]["attempt_id"], report)
    assert (answer.status_code, answer.json()["reason_code"]) == (400, "INVALID_INPUT")
    assert "outputs[0].new_field" in answer.json()["detail"]


def test_a_poll_that_waits_gets_a_task_that_comes_meanwhile(served: Served) -> None:
    worker = served.registered()
    answers: list[Any] = []
    poll = threading.Thread(target=lambda: answers.append(worker.poll(wait_seconds=30)))
    poll.start()
    [task_id] = planned(served)
    poll.join(60)
    assert [assignment["task"]["task_id"] for [assignment] in answers] == [task_id]


def test_a_poll_gets_no_task_after_its_token_was_revoked_while_it_waited(served: Served) -> None:
    worker = served.registered()
    optimizers, tokens = served.house.services.serve_optimizers, served.house.services.keep_tokens
    waits = optimizers.waits

    def revoked(group: str) -> bool:
        # A task comes, and before the waiting poll looks for it, somebody revokes the token, and has not ended the optimizer yet.
        planned(served)
        tokens.revoke(worker.token.partition(".")[0])
        return waits(group)

    body = {"poll_id": "p", "wait_seconds": 30}
    with mock.patch.object(optimizers, "waits", revoked):
        answer = served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/poll", worker.token, json=body)
    assert answer.status_code == 401
    assert served.house.services.read_tasks.queue_counts().pending == 1


def test_nothing_is_claimed_with_a_token_that_is_revoked_between_its_check_and_the_claim(served: Served) -> None:
    planned(served)
    worker = served.registered()
    services = served.house.services
    poll_many = services.serve_tasks.poll_many

    def revoked(*given: Any, **named: Any) -> Any:
        services.keep_tokens.revoke(worker.token.partition(".")[0])
        return poll_many(*given, **named)

    with mock.patch.object(services.serve_tasks, "poll_many", revoked):
        assert worker.poll() == []
    assert services.read_tasks.queue_counts().pending == 1


def test_an_optimizer_that_leaves_gives_its_tasks_back_at_once(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    worker.poll()
    assert served.ask("DELETE", f"/api/v1/optimizers/{worker.optimizer_id}", worker.token).status_code == 204
    assert status(served, task_id) is TaskStatus.PENDING
    answer = served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/poll", worker.token, json={"poll_id": "p"})
    assert answer.status_code == 404
    assert "register again" in answer.json()["detail"]


def test_a_silent_optimizer_is_lost_and_its_task_goes_to_another(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    worker.poll()
    services = served.house.services
    services.run_ticks.keep()
    for _ in range(3):
        served.house.pass_time(20)
        services.run_ticks.keep()
    [lost] = [each for each in services.serve_optimizers.optimizers() if each.optimizer_id == worker.optimizer_id]
    assert (lost.state.value, lost.why) == ("LOST", "it was silent for 1 min")
    assert status(served, task_id) is TaskStatus.PENDING
    assert served.ask("POST", f"/api/v1/optimizers/{worker.optimizer_id}/touch", worker.token, json={"running": []}).status_code == 404
    [again] = served.registered().poll()
    assert again["task"]["task_id"] == task_id


def test_a_draining_optimizer_gets_no_task(served: Served) -> None:
    planned(served)
    worker = served.registered()
    path = f"/api/v1/optimizers/{worker.optimizer_id}/drain"
    assert served.ask("POST", path, worker.token).status_code == 403
    assert served.ask("POST", path, served.token(Role.ADMIN)).status_code == 204
    assert worker.poll() == []
    assert worker.touch()["drain"] is True


def test_an_optimizer_of_another_merge_version_drains_when_its_server_was_upgraded(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    [waits] = planned(served, name="other")
    optimizers = served.house.services.stores.optimizers
    before = {"merge_version": MERGE_VERSION - 1}
    optimizers.instead(
        optimizer=lambda *asked: replace(optimizers.real.optimizer(*asked), **before),
        touch=lambda *asked: replace(optimizers.real.touch(*asked), **before),
    )
    assert worker.poll("p2") == []
    assert status(served, waits) is TaskStatus.PENDING
    touched = worker.touch(assignment["task"]["attempt_id"])
    assert (touched["drain"], touched["lost"]) == (True, [])
    assert f"install compaction-pipeline {served.house.services.version}" in touched["why"]
    # What it merged before it heard of this still counts, because the report is checked anyway.
    assert worker.complete(assignment["task"]["attempt_id"], merged(assignment)).status_code == 200
    assert status(served, task_id) is TaskStatus.PREPARED


def test_a_poll_takes_only_tasks_of_its_group(served: Served) -> None:
    planned(served)
    served.house.services.manage_groups.add(ResourceGroup("heavy"))
    assert served.registered(group="heavy").poll() == []
    assert len(served.registered().poll()) == 1


def test_an_optimizer_registers_only_for_a_group_that_exists(served: Served) -> None:
    answer = served.ask("POST", "/api/v1/optimizers", served.token(Role.OPTIMIZER), json={**REGISTRATION, "group": "heavy"})
    assert answer.status_code == 404
    assert "group 'heavy' does not exist" in answer.json()["detail"]


def test_the_tasks_of_an_optimizer_whose_token_was_revoked_wait_again_at_once(served: Served) -> None:
    [task_id] = planned(served)
    worker = served.registered()
    worker.poll()
    services = served.house.services
    assert services.serve_optimizers.end_all(services.keep_tokens.revoke(worker.token.partition(".")[0]), "its token was revoked") == (
        worker.optimizer_id,
    )
    [attempt] = services.stores.tasks.attempts(task_id)
    assert (attempt.end_reason, attempt.reason) == (EndReason.INTERRUPTED, f"optimizer {worker.optimizer_id}: its token was revoked")
    assert services.read_tasks.queue_counts().pending == 1


@pytest.mark.parametrize("wrong", ["text", True, 12.5])
def test_a_report_with_a_value_of_another_type_is_no_report_and_the_right_one_is_taken_after_it(served: Served, wrong: object) -> None:
    planned(served)
    worker = served.registered()
    [assignment] = worker.poll()
    report, attempt = merged(assignment), assignment["task"]["attempt_id"]
    told = str(report["rows_read"]) if wrong == "text" else wrong
    answer = worker.complete(attempt, {**report, "rows_read": told})
    assert (answer.status_code, "the report is no MergeResult: rows_read: " in answer.json()["detail"]) == (400, True)
    assert worker.complete(attempt, report).json() == {"status": "PREPARED"}
