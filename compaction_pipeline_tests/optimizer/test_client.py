"""A worker's queue over HTTP, against a real server in this process. The engine merges for real."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.capacity.ledger import Used
from compaction_pipeline.core.errors import ConfigError, NotFoundError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.queue.optimizer import OptimizerState, Registration
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.optimizer.client import HttpTaskQueue, Pace
from compaction_pipeline_tests.optimizer.serving import IMPATIENT, REGISTRATION, plan, serving
from compaction_pipeline_tests.services.house import House

Q = TypeVar("Q", bound=HttpTaskQueue)


def registered(kind: type[Q], house: House, port: int, registration: Registration = REGISTRATION, pace: Pace = IMPATIENT) -> Q:
    token = house.services.keep_tokens.issue(Role.OPTIMIZER, "workers").text
    queue = kind(f"http://127.0.0.1:{port}", token, registration, pace=pace)
    queue.register()
    return queue


def queue_at(house: House, port: int, registration: Registration = REGISTRATION, pace: Pace = IMPATIENT) -> HttpTaskQueue:
    return registered(HttpTaskQueue, house, port, registration, pace)


def taken_by(queue: HttpTaskQueue) -> Assignment:
    """The next task, for which the queue need not wait."""
    assert queue.waits(None)
    taken = queue.poll("worker", None)
    assert isinstance(taken, Assignment)
    return taken


def test_a_worker_over_http_merges_everything(house: House) -> None:
    with serving(house) as port:
        plan(house, "a", "b", "c")
        queue = queue_at(house, port)
        done = house.services.worker(queue, 1).drain(queue.optimizer_id)
        assert (len(done.prepared), done.failed) == (3, {})
    assert house.services.read_tasks.queue_counts().prepared == 3


def test_slots_that_poll_at_once_lose_no_answer(house: House) -> None:
    with serving(house) as port:
        plan(house, "a", "b", "c", "d")
        queue = queue_at(house, port)

        def take(slot: int) -> str | None:
            while queue.waits(None):
                taken = queue.poll("worker", None)
                if isinstance(taken, Assignment):
                    return taken.task.task_id
            return None

        with ThreadPoolExecutor(4) as slots:
            taken = list(slots.map(take, range(4)))
        assert len({task_id for task_id in taken if task_id}) == 4
        house.pass_time(20)
        queue.touch()
        assert house.services.read_tasks.queue_counts().executing == 4


def test_a_lost_attempt_is_learned_by_a_touch_and_its_report_is_stale(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        taken = taken_by(queue)
        assert queue.renew([taken.attempt_id]) == (taken.attempt_id,)
        house.pass_time(30)
        queue.touch()
        house.pass_time(59)
        house.services.keep_watch.keep()
        assert house.services.read_tasks.queue_counts().executing == 1
        house.pass_time(1)
        house.services.keep_watch.keep()
        queue.touch()
        assert queue.renew([taken.attempt_id]) == ()
        with pytest.raises(StaleAttempt):
            queue.complete(taken.task, MergeResult(taken.task.task_id, taken.attempt_id, error="too late"))


def test_a_heartbeat_tells_what_a_running_attempt_has_used(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        taken = taken_by(queue)
        house.pass_time(5)
        queue.renew([taken.attempt_id], {taken.attempt_id: UsedSoFar(1_500, 70)})
        queue.touch()
        (attempt,) = house.services.stores.tasks.attempts(taken.task.task_id)
        assert attempt.used == Used(1.5, None, 70)


def test_a_server_that_refuses_what_attempts_use_still_gets_heartbeats(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        taken = taken_by(queue)
        # A server of an earlier release answers the unknown field as this one answers a wrong one.
        for _ in range(3):
            house.pass_time(30)
            queue.renew([taken.attempt_id], {taken.attempt_id: UsedSoFar(-1, 70)})
            queue.touch()
            house.services.keep_watch.keep()
        assert queue.renew([taken.attempt_id]) == (taken.attempt_id,)
        assert house.services.read_tasks.queue_counts().executing == 1


def test_a_server_that_takes_only_short_heartbeats_still_gets_them(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    # A server of an earlier release lets a heartbeat have fewer marks than those that tell what attempts use.
    monkeypatch.setattr(body_bounds, "TOUCH", body_bounds.BodyBounds(10_000, 12))
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        taken = taken_by(queue)
        for _ in range(3):
            house.pass_time(30)
            queue.renew([taken.attempt_id], {taken.attempt_id: UsedSoFar(1_500, 70)})
            queue.touch()
            house.services.keep_watch.keep()
        assert queue.renew([taken.attempt_id]) == (taken.attempt_id,)
        (attempt,) = house.services.stores.tasks.attempts(taken.task.task_id)
        assert attempt.used is None
        house.services.serve_optimizers.cancel(queue.optimizer_id)
        with pytest.raises(ConfigError, match="a person canceled optimizer"):
            queue.touch()


def test_a_worker_survives_a_restart_and_a_server_that_forgot_it(house: House) -> None:
    with serving(house) as port:
        queue = queue_at(house, port)
        first = queue.optimizer_id
    assert not queue.waits(None)
    house.services.serve_optimizers.leave(first)
    with serving(house, port):
        plan(house, "a")
        assert not queue.waits(None)
        assert queue.optimizer_id != first
        assert queue.waits(None)


def test_a_worker_that_registers_anew_stops_the_merges_of_its_former_life(house: House) -> None:
    with serving(house) as port:
        plan(house, "a", "b")
        queue = queue_at(house, port)
        running = taken_by(queue)
        assert queue.waits(None)
        house.services.serve_optimizers.leave(queue.optimizer_id)
        queue.touch()
        assert queue.renew([running.attempt_id]) == ()
        with pytest.raises(StaleAttempt):
            queue.complete(running.task, MergeResult(running.task.task_id, running.attempt_id, error="canceled"))
        assert taken_by(queue).attempt_id != running.attempt_id


def test_a_canceled_worker_stops_its_merges_and_does_not_register_anew(house: House) -> None:
    plan(house, "a")
    with serving(house) as port:
        queue = queue_at(house, port)
        attempt = taken_by(queue).attempt_id
        house.services.serve_optimizers.cancel(queue.optimizer_id)
        with pytest.raises(ConfigError, match="a person canceled optimizer"):
            queue.touch()
        assert queue.renew([attempt]) == ()
        with pytest.raises(ConfigError, match="a person canceled optimizer"):
            queue.waits(None)
    assert house.services.serve_optimizers.optimizers(live=True) == ()


def test_a_worker_that_drains_takes_nothing_and_says_goodbye(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        house.services.serve_optimizers.drain(queue.optimizer_id)
        queue.touch()
        assert queue.drains.is_set()
        assert not queue.waits(None)
        queue.give_back("worker", EndReason.INTERRUPTED, "told to end")
        [optimizer] = house.services.serve_optimizers.optimizers()
        assert optimizer.state is OptimizerState.ENDED


def test_a_running_optimizer_changes_its_log_and_writes_its_stacks_into_it(house: House, caplog: pytest.LogCaptureFixture) -> None:
    ours = logging.getLogger("compaction_pipeline")
    with caplog.at_level(logging.INFO, logger=ours.name), serving(house) as port:
        queue = queue_at(house, port)
        services = house.services.serve_optimizers
        queue.touch()
        assert ours.level == logging.INFO
        services.set_log_level(queue.optimizer_id, "DEBUG")
        for asked in (1, 2):
            services.ask_for_stacks(queue.optimizer_id)
            queue.touch()
            queue.touch()
            stacks = [record.getMessage() for record in caplog.records if "stacks of all threads" in record.getMessage()]
            assert len(stacks) == asked
            assert "thread MainThread:" in stacks[-1]
            assert "in stacks_text" in stacks[-1]
        assert ours.level == logging.DEBUG


def test_a_failed_attempt_is_reported(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        taken = taken_by(queue)
        status = queue.complete(taken.task, MergeResult(taken.task.task_id, taken.attempt_id, error="the disk is full"))
        assert status is TaskStatus.PENDING
        [attempt] = house.services.stores.tasks.attempts(taken.task.task_id)
        assert (attempt.end_reason, attempt.reason) == (EndReason.FAILED, "the disk is full")


def test_a_server_that_is_away_and_a_token_that_is_wrong_are_clear_errors(house: House) -> None:
    unknown = r"does not accept the token: it does not know it, or somebody revoked it\. Issue one there"
    with serving(house) as port, pytest.raises(ConfigError, match=unknown):
        HttpTaskQueue(f"http://127.0.0.1:{port}", "a.b", REGISTRATION, pace=IMPATIENT).register()
    with pytest.raises(StorageUnavailable, match=r"/api/v1 did not answer: .*Connection refused\W*; see that it runs") as refused:
        HttpTaskQueue(f"http://127.0.0.1:{port}", "a.b", REGISTRATION, pace=IMPATIENT).register()
    assert "HTTPConnectionPool" not in str(refused.value)


def test_a_url_with_a_path_is_said_to_be_wrong(house: House) -> None:
    token = house.services.keep_tokens.issue(Role.OPTIMIZER, "workers").text
    with (
        serving(house) as port,
        pytest.raises(NotFoundError, match=r"answered 404: there is no such page; see that the URL .* and no path"),
    ):
        HttpTaskQueue(f"http://127.0.0.1:{port}/foo", token, REGISTRATION, pace=IMPATIENT).register()


def test_a_login_in_the_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match=r"--server has a user or a password before '@'") as refused:
        HttpTaskQueue("http://me:secret@127.0.0.1:1", "a.b", REGISTRATION, pace=IMPATIENT)
    assert "secret" not in str(refused.value)


def test_a_file_without_certificates_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no certificate")
    for name in ("note.txt", "missing.pem"):
        with pytest.raises(ConfigError, match=rf"--ca-file is '.*{name}' but must be a file with certificates in PEM"):
            HttpTaskQueue("https://127.0.0.1:1", "a.b", REGISTRATION, str(tmp_path / name), IMPATIENT)


def test_a_server_that_speaks_no_tls_is_said_to_do_so(house: House) -> None:
    with serving(house) as port, pytest.raises(StorageUnavailable, match=r"did not answer: TLS failed: [a-z0-9 ]+; see that it runs"):
        HttpTaskQueue(f"https://127.0.0.1:{port}", "a.b", REGISTRATION, pace=IMPATIENT).register()


@pytest.mark.parametrize("url", ["foo", "foo:8787", "ftp://host", "http://", "http://host:port", ""])
def test_a_text_that_is_no_url_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(ConfigError, match="but must be a URL, for example http"):
        HttpTaskQueue(url, "a.b", REGISTRATION, pace=IMPATIENT)


def test_the_log_says_once_that_the_server_is_away_and_once_that_it_is_back(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "compaction_pipeline.optimizer.client")
    with serving(house) as port:
        queue = queue_at(house, port)
    for _ in range(5):
        assert not queue.waits("default")
    with serving(house, port):
        assert not queue.waits("default")
    told = [record.message for record in caplog.records if "server" in record.message]
    away, back = told
    assert away.startswith("no task taken, tried again until the server answers: ")
    assert back.startswith("the server answers again, after ")


def test_a_task_that_nobody_begins_any_more_is_handed_back(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port)
        assert queue.waits(None)
        queue.drain("told to end")
        assert queue.poll("worker", None) is None
        house.pass_time(15)
        queue.touch()
        assert house.services.read_tasks.queue_counts().pending == 1


class ToldMeanwhile(HttpTaskQueue):
    """Is told to end while the server answers its polls."""

    def _send(self, method: str, path: str, *rest: Any) -> Any:
        answer = super()._send(method, path, *rest)
        if path.endswith("/poll"):
            self.drain("told to end")
        return answer


def test_an_answer_that_comes_after_the_end_was_asked_for_is_not_begun(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = registered(ToldMeanwhile, house, port)
        assert not queue.waits(None)
        house.pass_time(15)
        queue.touch()
        assert house.services.read_tasks.queue_counts().pending == 1


def test_an_optimizer_that_registers_anew_goes_on_with_its_heartbeats(house: House) -> None:
    logger = logging.getLogger("compaction_pipeline")
    level = logger.level
    try:
        with serving(house) as port:
            queue = queue_at(house, port)
            first = queue.optimizer_id
            house.services.serve_optimizers.set_log_level(first, "DEBUG")
            queue.touch()
            house.pass_time(3600)
            house.services.keep_watch.lose_silent()
            queue.touch()
            queue.touch()
            assert queue.optimizer_id != first
            assert logger.level == logging.DEBUG
    finally:
        logger.setLevel(level)


def test_a_report_that_cannot_be_delivered_says_that_the_task_is_tried_again(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        queue = queue_at(house, port, pace=replace(IMPATIENT, report_seconds=0.01))
        taken = taken_by(queue)
    with pytest.raises(
        StorageUnavailable, match=r"the report is let go, .*did not answer: .* the task's lease ends, and the task is tried"
    ):
        queue.complete(taken.task, MergeResult(taken.task.task_id, taken.attempt_id, error="the disk is full"))
    house.pass_time(60)
    house.services.keep_watch.keep()
    assert house.services.read_tasks.queue_counts().pending == 1
