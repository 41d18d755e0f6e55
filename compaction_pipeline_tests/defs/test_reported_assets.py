"""Assets of a user's Dagster that jobs of the dependency center wait for: what the sensor reports of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from compaction_pipeline.automation import ready_partitions, reported_assets
from compaction_pipeline.core.dependencies.center.subjects import window_text
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.defs.reported_assets import AssetTicks, ReportedAsset
from compaction_pipeline_tests.defs.ticks import Tick, reason
from compaction_pipeline_tests.services.dependencies.center_house import CenterHouse
from compaction_pipeline_tests.state import sqlite_stores

DAYS = dg.DailyPartitionsDefinition("2026-01-01", timezone="Europe/Berlin")
HOURS = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
FIRST, SECOND = "2026-01-01", "2026-01-02"
JOB: dict[str, Any] = {"name": "export", "period": "day", "zone": "Europe/Berlin", "since": FIRST, "needs": [{"asset": "shop/daily"}]}
KEY = dg.AssetKey(["shop", "daily"])
GATE = dg.AssetCheckKey(KEY, "gate")

between: list[Callable[[], None]] = []
"""What happens after `daily` was materialized, while its run goes on."""
passes: list[bool] = []
"""What the next evaluations of the check say; after the last one it passes."""


@dg.asset(key=KEY, partitions_def=DAYS)
def daily() -> None: ...


@dg.asset(deps=[daily], partitions_def=DAYS)
def behind() -> None:
    for happen in between:
        happen()


@dg.asset_check(asset=daily, blocking=True)
def gate() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=passes.pop(0) if passes else True)


@dg.asset(partitions_def=HOURS)
def hourly() -> None: ...


DEFS = dg.Definitions(assets=[daily, behind, hourly], asset_checks=[gate])


class World:
    """A Dagster, and a center with a job that waits for days of `daily`."""

    def __init__(self, instance: dg.DagsterInstance, house: CenterHouse) -> None:
        self.instance, self.house = instance, house
        self.cursor: str | None = None
        self.asset = ReportedAsset(KEY, DAYS)

    def ticks(self) -> AssetTicks:
        return AssetTicks(self.house.center, self.instance, [self.asset], self.house.now)

    def tick(self) -> dg.SensorResult:
        result = self.ticks().tick(self.cursor)
        self.cursor = result.cursor
        self.house.settle()
        return result

    def states(self) -> list[str]:
        self.tick()
        return [self.house.state("export", day) for day in (FIRST, SECOND)]

    def run(self, partition: str | None, *assets: dg.AssetsDefinition, checks: bool = False, **tags: str) -> str:
        """Run assets, or else the check alone. Return the id of the run."""
        job = DEFS.resolve_implicit_global_asset_job_def()
        wanted = job.get_subset(asset_selection={one.key for one in assets}, asset_check_selection={GATE} if checks else set())
        return wanted.execute_in_process(instance=self.instance, partition_key=partition, tags=tags, raise_on_error=False).run_id


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    between.clear()
    passes.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        made = World(instance, CenterHouse(sqlite_stores(tmp_path), datetime(2026, 1, 2, 12, tzinfo=timezone.utc)))
        made.house.save(JOB)
        made.house.settle()
        yield made


def break_down() -> None:
    raise RuntimeError("it broke")


def test_a_partition_is_there_when_its_run_has_ended_well(world: World) -> None:
    in_between: list[list[str]] = []
    between.append(lambda: in_between.append(world.states()))
    assert world.states() == ["WAITING", "WAITING"]
    world.run(SECOND, daily, behind)
    assert in_between == [["WAITING", "WAITING"]], "the run went on"
    assert world.states() == ["WAITING", "READY"]
    window = window_text(datetime(2026, 1, 1, 23, tzinfo=timezone.utc), datetime(2026, 1, 2, 23, tzinfo=timezone.utc))
    assert world.house.center.ready(f"asset=shop/daily && window={window}") is True


def test_a_run_that_failed_after_it_materialized_is_nothing_until_somebody_runs_the_rest(world: World) -> None:
    between.append(break_down)
    failed = world.run(FIRST, daily, behind)
    assert world.states() == ["WAITING", "WAITING"]
    between.clear()
    world.run(FIRST, behind, **{"dagster/root_run_id": failed, "dagster/parent_run_id": failed})
    assert world.states() == ["READY", "WAITING"]


def test_a_run_again_takes_back_what_was_there_until_it_has_ended_well(world: World) -> None:
    world.run(FIRST, daily)
    assert world.states() == ["READY", "WAITING"]
    between.append(break_down)
    world.run(FIRST, daily, behind)
    assert world.states() == ["WAITING", "WAITING"]
    world.run(FIRST, daily)
    assert world.states() == ["READY", "WAITING"]
    assert world.house.claimed() == [f"export/{FIRST}/scheduled/1"]
    world.run(FIRST, daily)
    world.tick()
    assert world.house.one("export", FIRST).changed_at == world.house.now, "it was there at both ticks, and is not the same"
    world.house.now += timedelta(minutes=1)
    world.tick()
    assert world.house.one("export", FIRST).changed_at != world.house.now


def test_a_partition_whose_run_was_deleted_is_taken_back_though_newer_ones_are_there(world: World) -> None:
    first = world.run(FIRST, daily)
    world.run(SECOND, daily)
    assert world.states() == ["READY", "READY"]
    told = window_text(datetime(2026, 1, 2, 23, tzinfo=timezone.utc), datetime(2026, 1, 3, 23, tzinfo=timezone.utc))
    world.house.succeed(f"asset=shop/daily && window={told}")
    world.instance.delete_run(first)
    world.house.now += timedelta(minutes=10)
    assert world.states() == ["WAITING", "READY"]
    assert world.house.center.ready(f"asset=shop/daily && window={told}") is True, "the sensor never spoke of it"


def test_a_blocking_check_that_fails_holds_it_up_until_it_passes(world: World) -> None:
    world.asset = ReportedAsset(KEY, DAYS, (GATE,))
    world.run(FIRST, daily)
    assert world.states() == ["WAITING", "WAITING"], "the check has not judged it yet"
    passes[:] = [False]
    world.run(FIRST, daily, checks=True)
    assert world.states() == ["WAITING", "WAITING"]
    world.run(SECOND, daily, checks=True)
    assert world.states() == ["WAITING", "READY"], "the check of another day's run says nothing of this one"
    world.run(None, checks=True, **{"dagster/partition": FIRST})
    assert world.states() == ["READY", "READY"]


def test_a_check_that_runs_alone_without_a_partition_is_about_all_of_them(world: World) -> None:
    world.asset = ReportedAsset(KEY, DAYS, (GATE,))
    for day in (FIRST, SECOND):
        world.run(day, daily, checks=True)
    assert world.states() == ["READY", "READY"]
    passes[:] = [False]
    world.run(None, checks=True)
    assert world.states() == ["WAITING", "WAITING"]
    world.run(None, checks=True)
    assert world.states() == ["READY", "READY"]


def test_an_asset_that_is_made_elsewhere_counts_by_its_events(world: World) -> None:
    world.asset = ReportedAsset(KEY, DAYS, (GATE,))
    world.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=FIRST))
    assert world.states() == ["WAITING", "WAITING"]
    for passed, state in ((False, "WAITING"), (True, "READY"), (False, "WAITING")):
        world.instance.report_runless_asset_event(dg.AssetCheckEvaluation(asset_key=KEY, check_name="gate", passed=passed))
        assert world.states() == [state, "WAITING"]


def test_a_wiped_asset_is_not_there(world: World) -> None:
    world.run(FIRST, daily)
    assert world.states() == ["READY", "WAITING"]
    world.instance.wipe_assets([KEY])
    world.run(SECOND, daily)
    assert world.states() == ["WAITING", "READY"]


def test_what_the_newest_run_made_is_not_there_any_more_when_the_run_is_deleted(world: World) -> None:
    run = world.run(FIRST, daily)
    assert world.states() == ["READY", "WAITING"]
    # The log has no event any more, and numbers begin anew.
    world.instance.delete_run(run)
    assert world.states() == ["WAITING", "WAITING"]
    world.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=SECOND))
    assert world.states() == ["WAITING", "READY"]
    world.instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=FIRST))
    assert world.states() == ["READY", "READY"]


def test_a_tick_that_was_cut_off_comes_again_and_one_that_comes_late_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.tick()
    world.run(FIRST, daily)
    with monkeypatch.context() as patched:
        patched.setattr("compaction_pipeline.defs.reported_assets._AT_ONCE", 1)
        posted: list[object] = []
        report = world.house.center.report_all

        def once(*arguments: Any) -> Any:
            if posted:
                raise StorageUnavailable("the state database went away")
            posted.append(report(*arguments))

        patched.setattr(world.house.center, "report_all", once)
        world.run(SECOND, daily)
        with pytest.raises(StorageUnavailable):
            world.ticks().tick(world.cursor)
    late: list[Any] = []
    monkeypatch.setattr(world.house.center, "report_all", lambda *arguments: late.append(arguments))
    world.ticks().tick(world.cursor)
    monkeypatch.undo()
    assert world.states() == ["READY", "READY"]
    between.append(break_down)
    world.run(FIRST, daily, behind)
    assert world.states() == ["WAITING", "READY"]
    (arguments,) = late
    world.house.center.report_all(*arguments)
    world.house.settle()
    assert world.house.state("export", FIRST) == "WAITING", "what was seen before the run again is old"


def test_an_event_whose_number_is_older_than_the_newest_one_is_not_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.instance.event_log_storage
    with monkeypatch.context() as patched:
        # Other processes have stored events with higher numbers meanwhile.
        patched.setattr(log, "get_maximum_record_id", lambda: 1_000)
        world.tick()
        world.house.now += timedelta(minutes=9)
        world.run(FIRST, daily)
        assert world.states() == ["READY", "WAITING"]
        world.house.now += timedelta(minutes=9)
        world.tick()
        world.run(SECOND, daily)
        assert world.states()[0] == "READY"
    for _ in range(3):
        world.house.now += timedelta(minutes=11)
        world.tick()
    assert json.loads(world.cursor or "")["assets"]["shop/daily"][0][0] > 0, "what is long over is not read again"


def test_a_thousand_events_are_reported_in_one_tick(world: World) -> None:
    world.asset = ReportedAsset(hourly.key, HOURS)
    world.house.now = datetime(2026, 2, 12, tzinfo=timezone.utc)
    keys = HOURS.get_partition_keys(current_time=world.house.now)[:1_000]
    world.tick()
    for key in keys:
        world.instance.report_runless_asset_event(dg.AssetMaterialization(hourly.key, partition=key))
    assert reason(world.tick()) == "hourly: 1000 partitions there, 0 not"
    windows = [world.asset.window(key) for key in keys]
    found = world.house.store.reached([world.asset.subject(window) for window in windows if window is not None])
    assert len(found) == 1_000
    assert set(found.values()) == {1}
    assert len(world.cursor or "") < 300


def test_partitions_are_times_and_what_is_none_is_refused() -> None:
    clocks_back = dg.HourlyPartitionsDefinition("2026-10-24-00:00", timezone="Europe/Berlin")
    asset = ReportedAsset(KEY, clocks_back)
    hours = [asset.window(key) for key in ("2026-10-25-02:00", "2026-10-25-02:00+0100")]
    assert [window and window.start.hour for window in hours] == [0, 1]
    assert [asset.window(key) for key in ("2026-10-25-02:30", "2026-10-25", "nothing")] == [None, None, None]
    weeks = dg.WeeklyPartitionsDefinition("2026-01-01")
    for definition, text in (
        (weeks, "Dagster's weeks begin on Sunday: give the definition day_offset=1"),
        (dg.DailyPartitionsDefinition("2026-01-01", hour_offset=6), "no job can wait for one; give it partitions by hour"),
        (dg.StaticPartitionsDefinition(["a"]), "no windows of time"),
        (None, "it has no partitions, so it has no time"),
    ):
        with pytest.raises(ConfigError, match=text):
            reported_assets([dg.AssetSpec("sales", partitions_def=definition)])
    monday = dg.AssetSpec("sales", partitions_def=dg.WeeklyPartitionsDefinition("2026-01-01", day_offset=1))
    ready = ready_partitions("lake.shop.orders", DAYS)
    assert reported_assets([monday, daily, ready.asset], name="of_shop").name == "of_shop"
    with pytest.raises(ConfigError, match="takes 1 to 100"):
        reported_assets([])


def test_the_sensor_knows_the_blocking_checks_of_its_code_location(tick: Tick, instance: dg.DagsterInstance, tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path}/state.db"
    of = dg.Definitions.merge(DEFS, dg.Definitions(sensors=[reported_assets([daily], state_url=state)]))
    instance.report_runless_asset_event(dg.AssetMaterialization(KEY, partition=FIRST))
    first = tick("reported_assets", of=of)
    assert reason(first) == "shop/daily: 0 partitions there, 1 not"
    instance.report_runless_asset_event(dg.AssetCheckEvaluation(asset_key=KEY, check_name="gate", passed=True))
    assert reason(tick("reported_assets", first.cursor, of)) == "shop/daily: 1 partition there, 0 not"
