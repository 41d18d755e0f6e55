"""A person ends a run: it says what is left and who goes on, and for ten minutes no sensor asks for another run."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from compaction_pipeline.core.queue.drain import Drain, Takes
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.names import COMMIT_JOB, COMPACT_JOB, MACHINE_TAGS
from compaction_pipeline.defs.terminated import HOLD, held_back
from compaction_pipeline.foundations import utc_now
from compaction_pipeline_tests.defs.in_hand import in_hand
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick, reason
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.plain_names import NAMES
from compaction_pipeline_tests.services.in_hand import InHand


def started(instance: dg.DagsterInstance, job: str = COMPACT_JOB, *, by_machine: bool = True) -> dg.DagsterRun:
    tags = MACHINE_TAGS if by_machine else None
    return instance.create_run_for_job(defs.resolve_job_def(job), tags=tags)


def end(instance: dg.DagsterInstance, run: dg.DagsterRun, message: str | None = None) -> None:
    """End a run as Dagster does when a person asks for it."""
    instance.report_run_canceling(run, message)
    instance.report_run_canceled(run)


def test_a_person_s_termination_holds_the_sensors_back_for_ten_minutes(instance: dg.DagsterInstance) -> None:
    assert held_back(NAMES, instance, utc_now()) is None
    run = started(instance)
    end(instance, run)
    held = held_back(NAMES, instance, utc_now())
    assert held is not None
    assert (held.run_id, held.job) == (run.run_id, COMPACT_JOB)
    assert f"because a person ended run {run.run_id[:8]} of compact_job; launch `compact_job` to go on at once" in held.text
    assert held_back(NAMES, instance, held.at + HOLD - timedelta(seconds=1)) == held
    assert held_back(NAMES, instance, held.at + HOLD) is None


def test_a_run_that_ends_slowly_and_one_that_was_queued_count_too(instance: dg.DagsterInstance) -> None:
    instance.report_run_canceling(started(instance))
    assert held_back(NAMES, instance, utc_now()) is not None
    end(instance, launched := started(instance, COMMIT_JOB, by_machine=False), "Canceling run from the queue.")
    held = held_back(NAMES, instance, utc_now())
    assert held is not None
    assert (held.run_id, held.job) == (launched.run_id, COMMIT_JOB)


def test_no_other_end_holds_anything_back(instance: dg.DagsterInstance) -> None:
    instance.report_run_failed(started(instance))
    end(instance, started(instance), "Canceling due to exceeding maximum runtime of 5 seconds.")
    end(instance, started(instance, "pause_job"))
    assert held_back(NAMES, instance, utc_now()) is None


def test_a_later_launch_of_a_person_ends_the_wait(instance: dg.DagsterInstance) -> None:
    end(instance, started(instance))
    started(instance, by_machine=True)
    assert held_back(NAMES, instance, utc_now()) is not None
    started(instance, by_machine=False)
    assert held_back(NAMES, instance, utc_now()) is None


@pytest.mark.parametrize("sensor", ["fragmentation_sensor", "commit_sensor"])
def test_a_tick_names_the_run_and_how_to_go_on_at_once(
    sensor: str, lake: Lake, services: OpenedServices, instance: dg.DagsterInstance, tick: Tick
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)
    if sensor == "commit_sensor":
        services.work_on_queue.drain("me", Drain(Takes(queues=lambda: ("default",))))
    assert tick(sensor).run_requests, "the sensor asks for a run before"
    run = started(instance)
    end(instance, run)
    result = tick(sensor)
    assert not result.run_requests
    assert f"a person ended run {run.run_id[:8]} of compact_job; launch `compact_job` to go on at once; optimizers, `serve`" in reason(
        result
    )


@pytest.mark.parametrize("by_person", [True, False])
def test_a_terminated_run_says_what_is_done_what_is_left_and_who_goes_on(
    by_person: bool, lake: Lake, services: OpenedServices, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.plan(Lake.identifier)

    def take(queue: InHand) -> None:
        def interrupted(*arguments: Any) -> object:
            queue.instead(poll=interrupt)
            return queue.real.complete(*arguments)

        queue.instead(complete=interrupted)

    def interrupt(*_: Any) -> None:
        (run,) = instance.get_runs()
        if by_person:
            instance.report_run_canceling(run)
        raise dg.DagsterExecutionInterruptedError

    with pytest.raises(dg.DagsterExecutionInterruptedError):
        defs.resolve_job_def(COMPACT_JOB).execute_in_process(instance=instance, resources=in_hand("serve_tasks", take))
    (run,) = instance.get_runs()
    (said,) = [
        entry.user_message for entry in instance.all_logs(run.run_id) if entry.level == logging.WARNING and "terminated" in entry.message
    ]
    assert said.startswith("terminated: 1 task merged and 1 commit made; left: 1 task waits; ")
    if by_person:
        assert "; a person ended this run, so no sensor asks for another one before " in said
        assert said.endswith(" UTC; launch `compact_job` to go on at once; optimizers, `serve` and the command line go on meanwhile")
    else:
        assert said.endswith("; the next run of `compact_job`, an optimizer or `serve` goes on")
    assert lake.files() == 6
