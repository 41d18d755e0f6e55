"""An optimizer asks its server before it starts its engine, and tells the server when the engine does not start."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState, Registration
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.optimizer.client import HttpTaskQueue
from compaction_pipeline.optimizer.loop import Beats, run_optimizer
from compaction_pipeline.process import heartbeat
from compaction_pipeline_tests.optimizer.conftest import house
from compaction_pipeline_tests.optimizer.serving import IMPATIENT, REGISTRATION, plan, serving
from compaction_pipeline_tests.services.house import House

__all__ = ["house"]

PATIENCE_SECONDS = 60


class Engine(InProcessMergeEngine):
    """Calls a function when it is started."""

    def __init__(self, start: Callable[[], object]) -> None:
        super().__init__()
        self._start = start

    def ready(self) -> None:
        self._start()


def fails(error: BaseException) -> Callable[[], object]:
    def start() -> None:
        raise error

    return start


def run(
    house: House,
    port: int,
    start: Callable[[], object],
    *,
    token: str | None = None,
    group: str = "default",
    beats: Beats = heartbeat,
) -> None:
    """Run an optimizer whose engine calls `start`."""
    services = Services(house.services.settings, engine_override=Engine(start))
    run_optimizer(services, HttpTaskQueue(*asking(house, port, token, group), pace=IMPATIENT), 1, beats)


def asking(house: House, port: int, token: str | None = None, group: str = "default") -> tuple[str, str, Registration]:
    """The server, a token for it, and what an optimizer says of itself."""
    token = token or house.services.keep_tokens.issue(Role.OPTIMIZER, "workers").text
    return f"http://127.0.0.1:{port}", token, replace(REGISTRATION, group=group)


def only(house: House) -> Optimizer:
    [optimizer] = house.services.serve_optimizers.optimizers()
    return optimizer


def test_the_engine_does_not_start_for_a_server_that_does_not_take_the_optimizer(house: House) -> None:
    engine_starts = fails(AssertionError("the engine starts"))
    revoked = house.services.keep_tokens.issue(Role.OPTIMIZER, "workers")
    house.services.keep_tokens.revoke(revoked.token.token_id)
    with serving(house) as port:
        with pytest.raises(ConfigError, match="does not accept the token"):
            run(house, port, engine_starts, token=revoked.text)
        with pytest.raises(NotFoundError, match="'light' does not exist"):
            run(house, port, engine_starts, group="light")
    with pytest.raises(StorageUnavailable, match="did not answer"):
        run(house, port, engine_starts)
    assert house.services.serve_optimizers.optimizers() == ()


class OnSpark(Services):
    """Has a Spark application as soon as its engine has started."""

    started = False

    def spark_application(self) -> str:
        return "app-7" if self.started else ""

    def spark_gc(self) -> tuple[float, float] | None:
        return (2.5, 40.0) if self.started else None


class EndsAfterItsFirstReport(HttpTaskQueue):
    def complete(self, task: CompactionTask, result: MergeResult) -> TaskStatus:
        status = super().complete(task, result)
        self.drain("done")
        return status


def test_the_server_knows_the_spark_application_before_the_first_task_is_claimed(house: House) -> None:
    services = OnSpark(house.services.settings, engine_override=Engine(lambda: setattr(services, "started", True)))
    with serving(house) as port:
        plan(house, "a")
        run_optimizer(services, EndsAfterItsFirstReport(*asking(house, port), pace=IMPATIENT), 1)
    [task] = house.services.stores.tasks.tasks()
    [attempt] = house.services.stores.tasks.attempts(task.task_id)
    assert (only(house).application, attempt.application) == ("app-7", "app-7")
    assert only(house).driver_gc == DriverGc(2.5, 40.0)


def test_an_engine_that_does_not_start_ends_the_registration_with_the_reason_and_takes_no_task(house: House) -> None:
    with serving(house) as port:
        plan(house, "a")
        no_spark = StorageUnavailable("Spark at spark://me:hunter2@there:7077 does not start: no answer")
        with pytest.raises(CompactionError, match="does not start: no answer"):
            run(house, port, fails(no_spark))
    ended = only(house)
    assert (ended.state, ended.failed) == (OptimizerState.ENDED, True)
    assert ended.why == "an error ended it: Spark at spark://me:***@there:7077 does not start: no answer"
    assert house.services.read_tasks.queue_counts().pending == 1


def test_the_server_hears_of_an_optimizer_whose_engine_starts_and_gives_it_no_task(house: House) -> None:

    def start() -> None:
        before = only(house)
        assert before.state is OptimizerState.RUNNING
        house.pass_time(30)
        until = time.monotonic() + PATIENCE_SECONDS
        while only(house).touched_at == before.touched_at:
            assert time.monotonic() < until, "no heartbeat came"
        assert house.services.read_tasks.queue_counts().executing == 0
        # A person presses Ctrl-C.
        raise KeyboardInterrupt

    with serving(house) as port:
        plan(house, "a")
        with pytest.raises(KeyboardInterrupt):
            run(house, port, start, beats=partial(heartbeat, every=timedelta(milliseconds=10)))
    ended = only(house)
    assert (ended.state, ended.failed, ended.why) == (OptimizerState.ENDED, False, "it was told to end")
    assert house.services.read_tasks.queue_counts().pending == 1
