"""Assets and jobs of users that wait for tables: what the sensors store and ask for, and what Dagster's automation makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta

import dagster as dg
import pytest

from compaction_pipeline.automation import ReadyPartitions, ready_definitions, ready_partitions, when_ready
from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.defs import ready_ticks
from compaction_pipeline.defs.ready_ticks import CHECK, most_runs
from compaction_pipeline.defs.ready_windows import Done, page, window_of
from compaction_pipeline_tests.defs.readiness import Tables, later, tables, utc
from compaction_pipeline_tests.defs.ticks import Tick, reason

__all__ = ["tables"]

DAYS = dg.DailyPartitionsDefinition("2026-01-01")
ORDERS = ready_partitions("lake.shop.orders", DAYS)
KEY = ORDERS.source.key
WHEN_READY = (
    dg.AutomationCondition.eager().without(dg.AutomationCondition.in_latest_time_window())
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
)


@dg.asset(partitions_def=DAYS, deps=[ORDERS.asset], automation_condition=WHEN_READY)
def report() -> None: ...


DEFS = dg.Definitions.merge(ready_definitions(ORDERS), dg.Definitions(assets=[report]))
SENSOR = "readiness_sensor"


def days(*numbers: int) -> list[str]:
    return [f"2026-01-{number:02}" for number in numbers]


def materialized(result: dg.SensorResult, key: dg.AssetKey = KEY) -> list[str]:
    events = (event for event in result.asset_events if isinstance(event, dg.AssetMaterialization) and event.asset_key == key)
    return [str(event.partition) for event in events]


def evaluations(result: dg.SensorResult) -> list[dg.AssetCheckEvaluation]:
    return [event for event in result.asset_events if isinstance(event, dg.AssetCheckEvaluation)]


class Automation:
    """Evaluates the condition of `report` as Dagster's sensor does, and carries out what it asks for."""

    def __init__(self, instance: dg.DagsterInstance, of: dg.Definitions = DEFS, asset: str = "report") -> None:
        self._instance, self._of, self._asset = instance, of, asset
        self._cursor = None

    def tick(self, now: datetime) -> list[str]:
        result = dg.evaluate_automation_conditions(
            self._of, self._instance, dg.AssetSelection.assets(self._asset), evaluation_time=now, cursor=self._cursor
        )
        self._cursor = result.cursor
        asked = sorted(key for each in result.results for key in each.true_subset.expensively_compute_partition_keys())
        for key in asked:
            self._instance.report_runless_asset_event(dg.AssetMaterialization(self._asset, partition=key))
        return asked


def test_partitions_become_materialized_once_when_the_watermark_has_passed_their_end(tables: Tables, tick: Tick) -> None:
    first = tick(SENSOR, of=DEFS)
    assert materialized(first) == [], "the watermark stands at the beginning of the first day"
    assert "9 partitions waiting, the first for 8 d for 2026-01-01T00:00Z/2026-01-02T00:00Z" in reason(first)
    tables.watermark = utc(2026, 1, 2) - timedelta(microseconds=1)
    assert materialized(tick(SENSOR, first.cursor, DEFS)) == []
    tables.watermark = utc(2026, 1, 3, 5)
    told = tick(SENSOR, first.cursor, DEFS)
    assert materialized(told) == days(1, 2)
    assert [event.passed for event in evaluations(told)] == [True]
    again = tick(SENSOR, told.cursor, DEFS)
    assert materialized(again) == evaluations(again) == []


def test_a_tick_that_lost_its_cursor_makes_no_second_event(tables: Tables, tick: Tick) -> None:
    tables.watermark = utc(2026, 1, 4)
    assert materialized(tick(SENSOR, of=DEFS)) == days(1, 2, 3)
    assert materialized(tick(SENSOR, None, DEFS)) == []


def test_a_tick_that_was_cut_off_between_its_events_goes_on_with_the_others(
    tables: Tables, tick: Tick, instance: dg.DagsterInstance
) -> None:
    """Dagster stores one event after the other, and then the cursor."""
    tables.watermark = utc(2026, 1, 4)
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition="2026-01-01"))
    result = tick(SENSOR, None, DEFS)
    assert materialized(result) == days(2, 3)
    assert len(evaluations(result)) == 1


def test_a_watermark_that_falls_turns_the_check_red_until_it_is_back_and_materializes_anew(tables: Tables, tick: Tick) -> None:
    tables.watermark = utc(2026, 1, 4)
    tick(SENSOR, of=DEFS)
    tables.watermark = utc(2026, 1, 2)
    (red,) = evaluations(taken_back := tick(SENSOR, None, DEFS))
    assert not red.passed
    assert red.blocking
    assert red.severity is dg.AssetCheckSeverity.ERROR
    assert red.metadata["withdrawn"].value == days(2, 3)
    assert "2 partitions of lake.shop.orders no longer ready, e.g. 2026-01-02" in str(red.description)
    assert "2 partitions taken back" in reason(taken_back)
    assert evaluations(tick(SENSOR, None, DEFS)) == [], "it is told once"
    tables.watermark = utc(2026, 1, 3)
    half = tick(SENSOR, None, DEFS)
    assert materialized(half) == days(2)
    assert [event.metadata["withdrawn"].value for event in evaluations(half)] == [days(3)]
    tables.watermark = utc(2026, 1, 5)
    back = tick(SENSOR, None, DEFS)
    assert materialized(back) == days(3, 4)
    assert [event.passed for event in evaluations(back)] == [True]


def test_an_asset_is_requested_once_for_each_day_when_the_day_is_ready_and_not_before(
    tables: Tables, tick: Tick, instance: dg.DagsterInstance
) -> None:
    automation = Automation(instance)
    assert automation.tick(tables.now) == []
    for moved, asked in (((2026, 1, 1, 23), []), ((2026, 1, 2), days(1)), ((2026, 1, 2, 9), []), ((2026, 1, 5), days(2, 3, 4))):
        tables.watermark = utc(*moved)
        tick(SENSOR, None, DEFS)
        later(tables, minutes=1)
        assert automation.tick(tables.now) == asked
        assert automation.tick(tables.now) == []


def test_an_asset_waits_while_the_check_is_red_and_runs_again_when_its_day_is_back(
    tables: Tables, tick: Tick, instance: dg.DagsterInstance
) -> None:
    automation = Automation(instance)
    automation.tick(tables.now)
    tables.watermark = utc(2026, 1, 3)
    tick(SENSOR, None, DEFS)
    tables.watermark = utc(2026, 1, 2)
    tick(SENSOR, None, DEFS)
    assert automation.tick(tables.now) == [], "day 2 was taken back before anybody asked"
    tables.watermark = utc(2026, 1, 4)
    tick(SENSOR, None, DEFS)
    assert automation.tick(tables.now) == days(1, 2, 3)
    tables.watermark = utc(2026, 1, 3)
    tick(SENSOR, None, DEFS)
    assert automation.tick(tables.now) == []
    tables.watermark = utc(2026, 1, 4)
    tick(SENSOR, None, DEFS)
    assert automation.tick(tables.now) == days(3), "the day was materialized anew"


def test_days_of_two_zones_are_asked_for_with_their_own_windows(tables: Tables, tick: Tick, instance: dg.DagsterInstance) -> None:
    berlin = dg.DailyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin")
    new_york = dg.DailyPartitionsDefinition("2026-01-01", timezone="America/New_York")
    there = [ready_partitions("lake.shop.orders", each, key=name) for name, each in (("berlin", berlin), ("new_york", new_york))]

    @dg.asset(partitions_def=berlin, deps=[there[0].asset], automation_condition=WHEN_READY)
    def in_berlin() -> None: ...

    @dg.asset(partitions_def=new_york, deps=[there[1].asset], automation_condition=WHEN_READY)
    def in_new_york() -> None: ...

    both = dg.Definitions.merge(ready_definitions(*there), dg.Definitions(assets=[in_berlin, in_new_york]))
    automations = [Automation(instance, both, name) for name in ("in_berlin", "in_new_york")]
    asked = []
    for moved in ((2026, 1, 1, 22, 59), (2026, 1, 1, 23), (2026, 1, 2), (2026, 1, 2, 5)):
        tables.watermark = utc(*moved)
        tick(SENSOR, None, both)
        asked.append([each.tick(tables.now) for each in automations])
    assert asked == [[[], []], [days(1), []], [[], []], [[], days(1)]]


def test_weeks_may_begin_on_any_day() -> None:
    sundays = dg.WeeklyPartitionsDefinition("2026-01-04", timezone="Europe/Berlin")
    assert window_of(sundays, "2026-01-04") == Window(utc(2026, 1, 3, 23), utc(2026, 1, 10, 23))
    assert ready_partitions("lake.shop.orders", sundays).source.window("2026-01-11").end == utc(2026, 1, 17, 23)


def test_an_hour_that_clocks_repeat_has_two_windows() -> None:
    hours = dg.HourlyPartitionsDefinition("2026-10-25-00:00", timezone="Europe/Berlin")
    found = [window_of(hours, key) for key in hours.get_partition_keys(current_time=utc(2026, 10, 25, 4))]
    assert [one.start for one in found] == [utc(2026, 10, 24, 22) + timedelta(hours=number) for number in range(6)]
    assert all(one.end - one.start == timedelta(hours=1) for one in found)


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (dg.StaticPartitionsDefinition(["a"]), "StaticPartitionsDefinition, whose partitions are no windows of time"),
        (dg.DynamicPartitionsDefinition(name="d"), "DynamicPartitionsDefinition.*give one by hour, day, week or month"),
        (dg.MultiPartitionsDefinition({"day": DAYS, "app": dg.StaticPartitionsDefinition(["a"])}), "its dimension by time"),
    ],
)
def test_definitions_that_are_not_by_time_are_refused_in_words(definition: dg.PartitionsDefinition[str], words: str) -> None:
    job = dg.define_asset_job("some")
    for door in (lambda: ready_partitions("lake.shop.orders", definition), lambda: when_ready("lake.shop.orders", definition, job=job)):
        with pytest.raises(ConfigError, match=words):
            door()


def test_too_many_tables_and_two_of_one_key_are_refused() -> None:
    with pytest.raises(ConfigError, match="101 tables but takes at most 100"):
        ready_definitions(*(ready_partitions(f"lake.shop.t{number}", DAYS) for number in range(101)))
    with pytest.raises(ConfigError, match="'ready/lake/shop/orders': give one of them another `key`"):
        ready_definitions(ORDERS, ORDERS)


def test_a_tick_without_a_catalog_says_so(tables: Tables, tick: Tick) -> None:
    tables.catalogs = []
    assert "catalog add" in reason(tick(SENSOR, None, DEFS))


def _many(number: int) -> tuple[list[ReadyPartitions], dg.Definitions]:
    made = [ready_partitions(f"lake.shop.t{each}", DAYS) for each in range(number)]
    return made, ready_definitions(*made)


def test_a_table_that_does_not_answer_and_one_that_is_broken_hold_back_no_other(
    tables: Tables, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_ticks, "BUDGET_SECONDS", 0.5)
    made, defs = _many(4)
    tables.watermark = utc(2026, 1, 2)
    tables.slow, tables.broken = {"t1": 5.0}, {"t0"}
    first = tick(SENSOR, None, defs)
    assert "t0: the catalog does not answer" in reason(first)
    assert "t1 did not answer" in reason(first)
    second = tick(SENSOR, first.cursor, defs)
    assert [materialized(second, made[number].source.key) for number in (2, 3)] == [days(1), days(1)]


def test_slow_tables_have_their_turn_in_the_next_tick(tables: Tables, tick: Tick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_ticks, "BUDGET_SECONDS", 3.0)
    made, defs = _many(3)
    tables.watermark = utc(2026, 1, 2)
    tables.slow = dict.fromkeys(("t0", "t1", "t2"), 0.9)
    told, cursor = [], None
    for _ in range(2):
        result = tick(SENSOR, cursor, defs)
        told.append([number for number, each in enumerate(made) if materialized(result, each.source.key)])
        assert "did not answer" not in reason(result)
        cursor = result.cursor
    assert told == [[0, 1], [2]]


def test_the_only_table_has_the_whole_time_of_a_tick(tables: Tables, tick: Tick, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_ticks, "BUDGET_SECONDS", 3.0)
    made, defs = _many(1)
    tables.watermark = utc(2026, 1, 2)
    tables.slow = {"t0": 1.7}
    assert materialized(tick(SENSOR, None, defs), made[0].source.key) == days(1)


def test_a_tick_stores_a_limited_number_of_events_and_the_next_one_the_rest(
    tables: Tables, tick: Tick, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_ticks, "MOST_EVENTS", 4)
    tables.watermark = utc(2026, 1, 8)
    told, cursor = [], None
    for _ in range(3):
        result = tick(SENSOR, cursor, DEFS)
        told.append(materialized(result))
        cursor = result.cursor
    assert told == [days(1, 2, 3, 4), days(5, 6, 7), []]


def test_the_plots_show_how_long_the_watermark_stands_and_what_waits(tables: Tables, tick: Tick) -> None:
    tables.watermark = utc(2026, 1, 9)
    first = tick(SENSOR, None, DEFS)
    assert _figures(first)["watermark_lag_seconds"] == 86_400
    later(tables, minutes=1)
    again = tick(SENSOR, first.cursor, DEFS)
    assert materialized(again, ORDERS.figures) == [], "not every tick makes a point"
    later(tables, minutes=29)
    figures = _figures(tick(SENSOR, again.cursor, DEFS))
    assert figures["watermark_stands_seconds"] == 1800
    assert (figures["waiting_partitions_count"], figures["longest_wait_seconds"]) == (1, 1800)
    assert (figures["ready_partitions_count"], figures["withdrawn_partitions_count"]) == (8, 0)
    assert "2026-01-09T00:00Z/2026-01-10T00:00Z: the watermark is" in str(figures["waits_for"])


def _figures(result: dg.SensorResult) -> dict[str, object]:
    (event,) = (event for event in result.asset_events if event.asset_key == ORDERS.figures)
    return {name: each.value for name, each in event.metadata.items()}


def test_the_check_can_be_run_by_a_person_and_agrees_with_the_sensor(tables: Tables, tick: Tick, instance: dg.DagsterInstance) -> None:
    tables.watermark = utc(2026, 1, 4)
    tick(SENSOR, None, DEFS)
    tables.watermark = utc(2026, 1, 2)
    job = dg.define_asset_job("checks", dg.AssetSelection.checks_for_assets(KEY))
    defs = dg.Definitions.merge(DEFS, dg.Definitions(jobs=[job]))
    result = defs.resolve_job_def("checks").execute_in_process(instance=instance, raise_on_error=False)
    (judged,) = result.get_asset_check_evaluations()
    assert (judged.check_name, judged.passed, judged.metadata["withdrawn"].value) == (CHECK, False, days(2, 3))
    assert evaluations(tick(SENSOR, None, DEFS)) == []


# ---- when_ready ---------------------------------------------------------------------------------------------------------

JOB = dg.define_asset_job("daily", selection=["report"])
WAITING = when_ready("lake.shop.orders", DAYS, job=JOB)
WITH_JOB = dg.Definitions.merge(DEFS, dg.Definitions(jobs=[JOB], sensors=[WAITING]))
TickJob = Callable[..., dg.SensorResult]


@pytest.fixture
def tick_job(instance: dg.DagsterInstance) -> TickJob:
    def evaluate(cursor: str | None = None) -> dg.SensorResult:
        repository = WITH_JOB.get_repository_def()
        with dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor) as context:
            result = repository.get_sensor_def("daily_when_ready")(context)
        assert isinstance(result, dg.SensorResult)
        return result

    return evaluate


def requested(result: dg.SensorResult) -> list[str]:
    return [str(request.partition_key) for request in result.run_requests or ()]


def test_a_job_gets_one_run_for_each_ready_partition(tables: Tables, tick_job: TickJob) -> None:
    first = tick_job()
    assert requested(first) == []
    assert "9 partitions waiting" in reason(first)
    tables.watermark = utc(2026, 1, 3)
    second = tick_job(first.cursor)
    assert requested(second) == days(1, 2)
    assert [request.run_key for request in second.run_requests or ()] == ["lake.shop.orders/2026-01-01", "lake.shop.orders/2026-01-02"]
    assert requested(tick_job(second.cursor)) == []
    assert json.loads(second.cursor or "")["done"] == [[int(utc(2026, 1, 1).timestamp()), int(utc(2026, 1, 3).timestamp())]]


def test_a_tick_whose_cursor_was_lost_asks_with_the_same_keys_so_dagster_starts_nothing_twice(tables: Tables, tick_job: TickJob) -> None:
    tables.watermark = utc(2026, 1, 3)
    assert [each.run_key for each in tick_job().run_requests or ()] == [each.run_key for each in tick_job(None).run_requests or ()]


def test_a_tick_asks_for_five_runs_a_second_at_most_the_oldest_first(tables: Tables, tick_job: TickJob) -> None:
    tables.now = utc(2026, 12, 1)
    tables.watermark = utc(2026, 11, 30)
    asked, cursor, most = [], None, 0
    while new := requested(result := tick_job(cursor)):
        asked, cursor, most = [*asked, *new], result.cursor, max(most, len(new))
    assert (len(asked), len(set(asked)), most) == (333, 333, 30 * 5)
    assert set(asked) == set(DAYS.get_partition_keys(current_time=utc(2026, 11, 30)))
    assert asked[:20] == days(*range(1, 21))
    assert (most_runs(3), most_runs(5)) == (20, 25)


def test_a_table_that_does_not_answer_leaves_the_cursor(tables: Tables, tick_job: TickJob, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready_ticks, "BUDGET_SECONDS", 0.3)
    tables.slow = {"orders": 3.0}
    result = tick_job("{}")
    assert (result.cursor, requested(result)) == ("{}", [])
    assert "did not answer" in reason(result)


# ---- pages and ranges ---------------------------------------------------------------------------------------------------


def test_pages_have_the_newest_keys_always_and_reach_every_older_one() -> None:
    keys = [f"{number:04}" for number in range(1000)]
    seen: set[str] = set()
    place = None
    for _ in range(3):
        asked, place = page(keys, place)
        assert list(asked[-200:]) == keys[-200:]
        assert len(asked) <= 500
        assert list(asked) == sorted(asked)
        seen |= set(asked)
    assert seen == set(keys)
    assert page(keys[:200], None) == (keys[:200], None)
    assert page([], None) == ([], None)


def test_done_windows_are_kept_as_few_ranges() -> None:
    done = Done()
    for day in (3, 1, 2, 5):
        done.add(Window(utc(2026, 1, day), utc(2026, 1, day + 1)))
    assert len(done.ranges) == 2
    again = Done(json.loads(json.dumps(done.ranges)))
    assert [again.has(Window(utc(2026, 1, day), utc(2026, 1, day + 1))) for day in range(1, 7)] == [True, True, True, False, True, False]
    assert not again.has(Window(utc(2026, 1, 3), utc(2026, 1, 5)))
