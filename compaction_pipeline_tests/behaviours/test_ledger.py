"""Every kind of state database charges attempts the same way: SQLite and PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest

from compaction_pipeline.core.capacity.costs import CostKey, SlotSum
from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.capacity.ledger import Used
from compaction_pipeline.core.capacity.low_use_share import IdleDay
from compaction_pipeline.core.capacity.own_work import OwnKind, OwnSum, OwnWork
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.prediction import Prediction
from compaction_pipeline.core.work.result import UsedSoFar
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, failed, prepared
from compaction_pipeline_tests.builders import NOW, TABLE

TODAY = NOW.date()
ONE = Optimizer("o1", "default", "host", "1", "1.0", 2, NOW, NOW, memory_bytes=4 * 10**9, cores=2.0)
SECONDS = timedelta(seconds=1)


def claimed(stores: Stores, task: CompactionTask, owner: str = "o1") -> CompactionTask:
    stores.tasks.insert([task], [], NOW)
    polled = stores.tasks.poll(None, owner, NOW, LEASE, [task.task_id])
    assert polled is not None
    return polled


def test_an_attempt_is_charged_once_when_it_ends(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1", kind=CompactionType.FULL))
    assert not stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    report = replace(prepared(task), cpu_ms=12_000, overhead_cpu_ms=500, peak_memory_bytes=10**9)
    stores.tasks.complete(report, NOW + 30 * SECONDS)
    stores.tasks.complete(report, NOW + 40 * SECONDS)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.key, cost.attempts, cost.slot_seconds, cost.merged_slot_seconds) == (str(TABLE), 1, 30.0, 30.0)
    assert (cost.cpu_seconds, cost.overhead_cpu_seconds, cost.provisional, cost.cut) == (12.0, 0.5, 0, 0)
    # One of two slots has half of the four GB.
    assert cost.gb_hours == pytest.approx(2 * 30 / 3600)
    assert (cost.bytes_read, cost.bytes_written) == (task.work.bytes_read, 100)
    for by, key in ((CostKey.TEAM, UNASSIGNED), (CostKey.TYPE, "FULL"), (CostKey.GROUP, "default"), (CostKey.DAY, TODAY.isoformat())):
        assert [each.key for each in stores.costs.sums(by, TODAY, TODAY)] == [key]
    later = TODAY + timedelta(days=1)
    assert not stores.costs.sums(CostKey.TABLE, later, later)


def test_failed_work_is_charged_too_and_shown_apart(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    stores.tasks.complete(failed(claimed(stores, example("t1"))), NOW + 10 * SECONDS)
    again = stores.tasks.poll(None, "o1", NOW + 20 * SECONDS, LEASE)
    assert again is not None
    stores.tasks.complete(prepared(again), NOW + 50 * SECONDS)
    (cost,) = stores.costs.sums(CostKey.TEAM, TODAY, TODAY)
    assert (cost.attempts, cost.slot_seconds, cost.merged_slot_seconds) == (2, 40.0, 30.0)
    assert cost.cpu_seconds is None


def test_a_lost_attempt_ends_when_its_worker_was_last_heard_of_and_a_late_report_corrects_its_cpu_once(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    stores.tasks.renew([task.current_attempt_id], NOW + 20 * SECONDS, LEASE)
    late = NOW + 20 * SECONDS + 3 * LEASE
    assert stores.tasks.release_expired(late) == ("t1",)
    (lost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (lost.slot_seconds, lost.merged_slot_seconds, lost.cpu_seconds, lost.provisional) == (20.0, 0.0, None, 1)
    stores.tasks.correct_cost(replace(prepared(task), cpu_ms=7_000, peak_memory_bytes=5), late)
    stores.tasks.correct_cost(replace(prepared(task), cpu_ms=9_000, peak_memory_bytes=6), late)
    (corrected,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (corrected.slot_seconds, corrected.cpu_seconds, corrected.provisional, corrected.attempts) == (20.0, 7.0, 0, 1)
    assert corrected.bytes_written is None


def test_a_report_that_was_in_time_is_not_corrected(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    report = replace(prepared(task), cpu_ms=1_000)
    stores.tasks.complete(report, NOW + 30 * SECONDS)
    stores.tasks.correct_cost(replace(report, cpu_ms=20_000), NOW + 40 * SECONDS)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert cost.cpu_seconds == 1.0


def test_a_lie_is_cut_and_the_cut_is_told(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    stores.tasks.complete(replace(prepared(task), cpu_ms=2**62, overhead_cpu_ms=-5, peak_memory_bytes=2**62), NOW + 10 * SECONDS)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.cpu_seconds, cost.overhead_cpu_seconds, cost.cut) == (20.0, 0.0, 1)


def test_a_lie_of_a_failed_attempt_that_no_column_could_hold_ends_the_attempt_all_the_same(stores: Stores) -> None:
    task = claimed(stores, example("t1"), "nobody knows its memory")
    lie = replace(failed(task), cpu_ms=10**400, overhead_cpu_ms=-(10**400), peak_memory_bytes=10**40)
    assert stores.tasks.complete(lie, NOW + 10 * SECONDS) is not None
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.attempts, cost.cut) == (1, 1)
    stores.tasks.release_expired(NOW + 2 * LEASE)
    again = stores.tasks.poll(None, "another", NOW, LEASE)
    assert again is not None
    stores.tasks.release_expired(NOW + 2 * LEASE)
    stores.tasks.correct_cost(replace(prepared(again), cpu_ms=10**400, peak_memory_bytes=10**40), NOW + 3 * LEASE)
    assert stores.costs.sums(CostKey.TABLE, TODAY, TODAY)[0].cut == 2


def test_a_canceled_and_a_late_attempt_are_charged_until_they_end(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    claimed(stores, example("t1"))
    stores.tasks.cancel(["t1"], EndReason.GIVEN_UP, "a person", NOW + 15 * SECONDS, running=True)
    claimed(stores, example("t2"), "a run")
    stores.tasks.end_overdue(NOW + 45 * SECONDS, 45 * SECONDS, LEASE)
    (cost,) = stores.costs.sums(CostKey.GROUP, TODAY, TODAY)
    assert (cost.attempts, cost.slot_seconds, cost.merged_slot_seconds, cost.provisional) == (2, 60.0, 0.0, 2)
    # Nobody said how much memory the run has.
    assert cost.gb_hours == pytest.approx(2 * 15 / 3600)


def test_costs_outlive_the_tasks_and_old_rows_become_sums_of_days_and_teams(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    for name in ("t1", "t2"):
        stores.tasks.complete(replace(prepared(claimed(stores, example(name))), cpu_ms=1_000), NOW + 30 * SECONDS)
    before = stores.costs.sums(CostKey.TEAM, TODAY, TODAY)
    stores.costs.expire(TODAY + timedelta(days=1), TODAY)
    assert not stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    (kept,) = stores.costs.sums(CostKey.TEAM, TODAY, TODAY)
    assert (kept.key, kept.attempts, kept.slot_seconds, kept.cpu_seconds) == (UNASSIGNED, 2, 60.0, 2.0)
    assert kept.gb_hours == before[0].gb_hours
    assert [each.key for each in stores.costs.sums(CostKey.DAY, TODAY, TODAY)] == [TODAY.isoformat()]
    # A row that comes later, for example a correction of that day, is added and replaces nothing.
    stores.tasks.complete(prepared(claimed(stores, example("t3"))), NOW + 5 * SECONDS)
    stores.costs.expire(TODAY + timedelta(days=1), TODAY)
    (kept,) = stores.costs.sums(CostKey.TEAM, TODAY, TODAY)
    assert (kept.attempts, kept.slot_seconds) == (3, 65.0)
    stores.costs.expire(TODAY + timedelta(days=1), TODAY + timedelta(days=1))
    assert not stores.costs.sums(CostKey.TEAM, TODAY, TODAY)


def test_what_the_slots_of_an_optimizer_did_adds_up_to_its_life(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    stores.optimizers.touch("o1", NOW + 10 * SECONDS, SlotTotals())
    stores.optimizers.note_first_poll("o1", NOW + 10 * SECONDS)
    stores.optimizers.note_first_poll("o1", NOW + 11 * SECONDS)
    stores.optimizers.touch("o1", NOW + 30 * SECONDS, SlotTotals(15.0, 25.0))
    # A touch that is told twice, and one of before that arrives late.
    stores.optimizers.touch("o1", NOW + 30 * SECONDS, SlotTotals(15.0, 25.0))
    touched = stores.optimizers.touch("o1", NOW + 40 * SECONDS, SlotTotals(12.0, 20.0))
    assert touched is not None
    assert (touched.held_seconds, touched.idle_seconds, touched.first_polled_at) == (15.0, 25.0, NOW + 10 * SECONDS)
    (found,) = stores.costs.slots(TODAY, TODAY)
    assert found == SlotSum("default", 1, 20.0, 15.0, 25.0, 20.0, pytest.approx(80 * 2 / 3600))  # type: ignore[arg-type]
    # An optimizer of an earlier release tells nothing. What a later touch tells for that time is not believed.
    assert stores.optimizers.touch("o1", NOW + 50 * SECONDS) is not None
    assert stores.costs.slots(TODAY, TODAY) == (found,)
    stores.optimizers.touch("o1", NOW + 60 * SECONDS, SlotTotals(15.0, 65.0))
    (later,) = stores.costs.slots(TODAY, TODAY)
    assert (later.idle, later.starting, later.ending) == (45.0, 20.0, 20.0)


def test_an_optimizer_tells_no_more_time_than_has_passed(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    stores.optimizers.note_first_poll("o1", NOW)
    stores.optimizers.touch("o1", NOW + 10 * SECONDS, SlotTotals(1e12, 1e12))
    (found,) = stores.costs.slots(TODAY, TODAY)
    assert (found.held, found.idle, found.ending) == (20.0, 0.0, 0.0)


def test_what_runs_on_a_table_that_is_forgotten_stays_charged(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    stores.index.add(TABLE)
    task = claimed(stores, example("t1"))
    stores.tasks.renew([task.current_attempt_id], NOW + 25 * SECONDS, LEASE)
    stores.index.forget(TABLE)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.attempts, cost.slot_seconds, cost.merged_slot_seconds, cost.provisional) == (1, 25.0, 0.0, 1)


def test_an_attempt_that_its_optimizer_no_longer_names_may_still_tell_its_cpu(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    stores.tasks.renew([task.current_attempt_id], NOW + 10 * SECONDS, LEASE)
    by_server = replace(failed(task, "the optimizer does not name it any more"), end_reason=EndReason.LOST)
    stores.tasks.complete(by_server, NOW + 30 * SECONDS)
    stores.tasks.correct_cost(replace(prepared(task), cpu_ms=3_000), NOW + 40 * SECONDS)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.slot_seconds, cost.cpu_seconds, cost.provisional) == (10.0, 3.0, 0)


def telling(stores: Stores, task: CompactionTask, seconds: int, cpu_ms: int, peak: int) -> None:
    """Let the worker of this task tell what it has used until so many seconds after the claim."""
    told = {task.current_attempt_id: UsedSoFar(cpu_ms, peak)}
    stores.tasks.renew([task.current_attempt_id], NOW + seconds * SECONDS, LEASE, told)


def used(stores: Stores, task: CompactionTask) -> Used | None:
    (attempt,) = stores.tasks.attempts(task.task_id)
    return attempt.used


def test_a_running_attempt_shows_what_its_worker_told_last_and_an_ended_one_what_it_was_charged_for(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    assert used(stores, task) is None
    telling(stores, task, 10, 4_000, 70)
    assert used(stores, task) == Used(4.0, None, 70)
    telling(stores, task, 20, 9_000, 90)
    # This one was late on its way.
    telling(stores, task, 21, 4_000, 70)
    assert used(stores, task) == Used(9.0, None, 90)
    assert not stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    stores.tasks.complete(replace(prepared(task), cpu_ms=12_000, overhead_cpu_ms=0, peak_memory_bytes=80), NOW + 30 * SECONDS)
    assert used(stores, task) == Used(12.0, 0.0, 80, task.work.bytes_read, 100)


def test_what_a_running_attempt_tells_is_cut_at_what_is_possible(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    telling(stores, task, 10, 2**60, 2**60)
    assert used(stores, task) == Used(20.0, None, 2 * 10**9, is_cut=True)
    stores.tasks.release_expired(NOW + 10 * SECONDS + 3 * LEASE)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.slot_seconds, cost.cpu_seconds, cost.cut) == (10.0, 20.0, 1)


def test_an_attempt_that_has_lost_its_task_tells_nothing_more(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    stores.tasks.release_expired(NOW + 3 * LEASE)
    telling(stores, task, 200, 1_000, 70)
    assert used(stores, task) == Used()


def test_a_lost_attempt_is_charged_for_what_it_told_last_until_its_report_corrects_it_once(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = claimed(stores, example("t1"))
    telling(stores, task, 20, 6_000, 70)
    late = NOW + 20 * SECONDS + 3 * LEASE
    assert stores.tasks.release_expired(late) == ("t1",)
    (lost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (lost.slot_seconds, lost.cpu_seconds, lost.provisional) == (20.0, 6.0, 1)
    assert used(stores, task) == Used(6.0, None, 70)
    stores.tasks.correct_cost(replace(prepared(task), cpu_ms=7_000, peak_memory_bytes=90), late)
    stores.tasks.correct_cost(replace(prepared(task), cpu_ms=9_000, peak_memory_bytes=99), late)
    (corrected,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (corrected.slot_seconds, corrected.cpu_seconds, corrected.provisional, corrected.attempts) == (20.0, 7.0, 0, 1)
    assert used(stores, task) == Used(7.0, None, 90)


def test_an_end_that_tells_nothing_leaves_what_was_told_before(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    died, lost = claimed(stores, example("t1")), claimed(stores, example("t2"))
    telling(stores, died, 10, 3_000, 70)
    telling(stores, lost, 10, 2_000, 60)
    # The worker of the first one died, so the engine does not know what it has used.
    stores.tasks.complete(failed(died, "the worker died"), NOW + 20 * SECONDS)
    late = NOW + 20 * SECONDS + 3 * LEASE
    assert stores.tasks.release_expired(late) == ("t2",)
    stores.tasks.correct_cost(prepared(lost), late)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.cpu_seconds, cost.provisional) == (5.0, 0)
    assert (used(stores, died), used(stores, lost)) == (Used(3.0, None, 70), Used(2.0, None, 60))


def test_a_run_of_its_own_tells_too_and_a_table_that_is_forgotten_keeps_it(stores: Stores) -> None:
    stores.index.add(TABLE)
    stores.tasks.insert([example("t1")], [], NOW)
    task = stores.tasks.poll(None, "a run", NOW, LEASE, ["t1"])
    assert task is not None
    telling(stores, task, 10, 3_000, 70)
    assert used(stores, task) == Used(3.0, None, 70)
    stores.index.forget(TABLE)
    (cost,) = stores.costs.sums(CostKey.TABLE, TODAY, TODAY)
    assert (cost.slot_seconds, cost.cpu_seconds, cost.provisional, cost.cut) == (10.0, 3.0, 1, 0)


def test_rows_are_summed_once_by_however_many_at_a_time(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    for number in range(10):
        stores.tasks.complete(prepared(claimed(stores, example(f"t{number}"))), NOW + 10 * SECONDS)
    begun = Barrier(4)

    def expire() -> None:
        begun.wait()
        stores.costs.expire(TODAY + timedelta(days=1), TODAY)

    with ThreadPoolExecutor(4) as pool:
        for one in [pool.submit(expire) for _ in range(4)]:
            one.result()
    (kept,) = stores.costs.sums(CostKey.TEAM, TODAY, TODAY)
    assert (kept.attempts, kept.slot_seconds) == (10, 100.0)


def test_an_optimizer_of_a_container_is_charged_from_the_moment_when_it_was_asked_for(stores: Stores) -> None:
    asked = replace(ONE, state=OptimizerState.STARTING, container="c", resource_id="r", process="")
    assert stores.optimizers.begin(asked, 1)
    came = replace(ONE, optimizer_id="o2", resource_id="r", started_at=NOW + 3 * SECONDS, touched_at=NOW + 3 * SECONDS)
    assert stores.optimizers.register(came).optimizer_id == "o1"
    (found,) = stores.costs.slots(TODAY, TODAY)
    assert (found.starting, found.held, found.idle) == (6.0, 0.0, 0.0)


def test_the_use_of_an_owner_counts_its_time_in_the_window_and_what_it_told(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    first, second = claimed(stores, example("t1")), claimed(stores, example("t2"))
    stores.tasks.complete(replace(prepared(first), cpu_ms=8_000, peak_memory_bytes=70), NOW + 40 * SECONDS)
    # The first ten seconds lie before the window. The second attempt runs until now, and has told nothing.
    since, now = NOW + 10 * SECONDS, NOW + 60 * SECONDS
    (use,) = stores.costs.uses(since, now).values()
    assert use.busy_seconds == pytest.approx(30 + 50, abs=0.01)
    assert (use.told_seconds, use.cpu_seconds, use.peak_memory_bytes) == (40.0, 8.0, 70)
    stores.tasks.complete(failed(second), NOW + 70 * SECONDS)
    later = stores.costs.uses(NOW + 60 * SECONDS, NOW + 80 * SECONDS)
    assert later["o1"].busy_seconds == pytest.approx(10, abs=0.01)
    assert (later["o1"].told_seconds, later["o1"].peak_memory_bytes) == (0.0, None)
    assert not stores.costs.uses(NOW + 71 * SECONDS, NOW + 80 * SECONDS)


def test_an_attempt_keeps_what_its_plan_expected_it_to_write_also_over_midnight(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    task = example("t1")
    claimed(stores, replace(task, work=replace(task.work, predicted_bytes=777)))
    (running,) = stores.tasks.tasks(TABLE)
    stores.tasks.complete(prepared(running), NOW + timedelta(days=1))
    (found,) = stores.costs.past(TABLE, CompactionType.MINOR)
    assert (found.bytes_written, found.expected_bytes) == (100, 777)
    known = stores.costs.gb_hours([running.current_attempt_id, AttemptId("nobody's")])
    assert known == {running.current_attempt_id: pytest.approx(24 * 2)}


def test_tasks_of_a_team_that_run_or_may_begin_are_promised_their_hours(stores: Stores) -> None:
    """Those that failed, wait on a paused table, have an unknown cost, or belong to another team, are not."""
    stores.optimizers.add(ONE)
    stores.index.add(TABLE)
    costs = {"waits": 0.5, "runs": 2.0, "unknown": None, "fails": 4.0}
    tasks = [replace(example(name), prediction=Prediction(10, hours), max_attempts=1) for name, hours in costs.items()]
    stores.tasks.insert(tasks, [], NOW)
    assert stores.costs.promised(UNASSIGNED) == 6.5
    assert stores.costs.promised("ant") == 0.0
    runs, fails = (stores.tasks.poll(None, "o1", NOW, LEASE, [TaskId(name)]) for name in ("runs", "fails"))
    assert runs is not None
    assert fails is not None
    stores.tasks.complete(failed(fails), NOW + SECONDS)
    assert stores.costs.promised(UNASSIGNED) == 2.5
    stores.switches.pause(TABLE, True)
    assert stores.costs.promised(UNASSIGNED) == 2.0
    stores.tasks.complete(prepared(runs), NOW + SECONDS)
    assert stores.costs.promised(UNASSIGNED) == 0.0


def test_the_last_attempts_are_those_that_merged_newest_first(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    for number in range(25):
        task = claimed(stores, example(f"t{number:02}", inputs_kb=10 + number))
        stores.tasks.complete(prepared(task), NOW + (10 + number) * SECONDS)
    stores.tasks.complete(failed(claimed(stores, example("bad"))), NOW + 99 * SECONDS)
    found = stores.costs.past(TABLE, CompactionType.MINOR)
    assert [run.slot_seconds for run in found] == [float(10 + number) for number in reversed(range(5, 25))]
    assert found[0].bytes_read > found[-1].bytes_read
    assert found[0].gb_hours == pytest.approx(2 * 34 / 3600)
    # The last attempt wrote one file of 100 bytes.
    assert (found[0].bytes_read, found[0].bytes_written) == (example("t24", inputs_kb=34).work.bytes_read, 100)
    assert stores.costs.past(None, None) == found
    assert not stores.costs.past(TABLE, CompactionType.FULL)


def test_own_work_and_idle_time_are_summed_by_day(stores: Stores) -> None:
    day = NOW.date()
    stores.costs.add_own(
        [OwnWork(day, OwnKind.PLAN, "lake.shop.orders", "ant", 2, 3.0, 1.0), OwnWork(day, OwnKind.TICK, "", "", 1, 5.0, 2.0)]
    )
    stores.costs.add_own([OwnWork(day, OwnKind.PLAN, "lake.shop.orders", "ant", 1, 4.0, 1.0)])
    assert stores.costs.own(CostKey.TYPE, day, day) == [
        OwnSum("plan", OwnKind.PLAN, 3, 7.0, 2.0),
        OwnSum("tick", OwnKind.TICK, 1, 5.0, 2.0),
    ]
    assert [each.key for each in stores.costs.own(CostKey.DAY, day, day)] == [day.isoformat()] * 2
    stores.optimizers.add(Optimizer("o1", "default", "host", "1", "1.0", 2, NOW, NOW, memory_bytes=2 * 10**9))
    stores.optimizers.note_first_poll("o1", NOW)
    stores.optimizers.touch("o1", NOW + timedelta(seconds=10), SlotTotals(held=5, idle=15))
    assert stores.costs.idle(day, day) == (IdleDay("default", 15.0, pytest.approx(15 / 3600), {}),)


def test_totals_of_a_driver_become_observations(stores: Stores) -> None:
    stores.optimizers.add(ONE)
    for minute in range(3):
        touched = stores.optimizers.touch("o1", NOW, None, DriverGc(12.0 * minute, 60.0 * minute))
    assert touched is not None
    assert touched.driver_gc == DriverGc(24.0, 120.0, 0.2, 2)
    # An optimizer that tells nothing keeps what is known of it.
    assert stores.optimizers.touch("o1", NOW) is not None
    found = stores.optimizers.optimizer("o1")
    assert found is not None
    assert found.driver_gc == touched.driver_gc
