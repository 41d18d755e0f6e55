"""`table_health` is told seldom, bad news at once, and its freshness fails when nobody looks at the tables."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import dagster as dg
import pytest
from dagster._core.definitions.freshness import FreshnessState
from dagster._core.definitions.freshness_evaluator import TimeWindowFreshnessPolicyEvaluator
from dagster._core.loader import LoadingContextForTest
from dagster._core.test_utils import freeze_time

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.health_score import ALL_POINTS, HealthScore, ScoreParts
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.queue.queue_counts import QueueCounts
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs.health_events import HEARTBEAT, MANY, Told
from compaction_pipeline.defs.health_page import health_page
from compaction_pipeline.defs.markdown import is_shown_at_once
from compaction_pipeline.foundations import utc_now
from compaction_pipeline.services.insight.read_status import Status
from compaction_pipeline_tests.defs.clocked import compaction_at
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.defs.ticks import Tick
from compaction_pipeline_tests.defs.values import NOW, ORDERS, overview
from compaction_pipeline_tests.plain_names import NAMES, TABLE_FIGURES, TABLE_HEALTH


def status(after: float = 0, *, files: int = 10, health: HealthStatus = HealthStatus.DUE, failed: int = 0) -> Status:
    """A status some seconds after noon, with one node."""
    node = overview(1, health, data_files=files)
    return Status(NOW + timedelta(seconds=after), (), (), (node,), (), QueueCounts(failed=failed), (), (), 1, 1, (node,))


def test_changes_are_told_once_a_minute_and_nothing_new_every_five() -> None:
    first = Told().next(status())
    assert first is not None
    assert first.next(status(30, files=11)) is None
    assert first.next(status(60)) is None
    assert first.next(status(60, files=11)) is not None
    assert first.next(status(299)) is None
    assert first.next(status(300)) is not None


def test_changes_of_many_tables_are_told_every_two_minutes() -> None:
    table = TableOverview(ORDERS, 1, NodeMetrics(), HealthStatus.DUE, "1 task waits")
    first = Told().next(replace(status(), tables=(table,) * MANY))
    assert first is not None
    assert first.next(replace(status(119, files=11), tables=(table,) * MANY)) is None
    assert first.next(replace(status(120, files=11), tables=(table,) * MANY)) is not None


@pytest.mark.parametrize("bad", [{"health": HealthStatus.FAILING}, {"failed": 1}])
def test_bad_news_and_its_end_are_told_at_once(bad: dict[str, object]) -> None:
    first = Told().next(status())
    assert first is not None
    second = first.next(status(1, **bad))  # type: ignore[arg-type]
    assert second is not None
    assert second.next(status(2, **bad)) is None  # type: ignore[arg-type]
    assert second.next(status(2)) is not None


def test_large_pictures_are_told_every_five_minutes() -> None:
    first = Told().next(status())
    assert first is not None
    assert first.large_at == int(NOW.timestamp())
    second = first.next(status(60, files=11))
    assert second is not None
    assert second.large_at == first.large_at
    third = second.next(status(300, files=12))
    assert third is not None
    assert third.large_at == third.at
    assert Told.of(third.text) == third


# ---- when the program stands still


class Deployment:
    """Sensors on a clock that a test moves. Dagster has the same clock."""

    def __init__(self, instance: dg.DagsterInstance, tick: Tick) -> None:
        self.now = utc_now()
        self._instance = instance
        self._tick = tick
        self._cursors: dict[str, str | None] = {}

    def pass_time(self, time: timedelta, *sensors: str) -> None:
        """Let these sensors tick for so long, every minute at first and then every three minutes."""
        began = self.now
        while self.now < began + time:
            self.now += timedelta(minutes=1 if self.now < began + timedelta(minutes=11) else 3)
            with freeze_time(self.now):
                for name in sensors:
                    self._cursors[name] = self._tick(name, self._cursors.get(name), compaction=compaction_at(lambda: self.now)).cursor

    def reset(self, sensor: str) -> None:
        """Forget what the sensor remembers, as a person does who resets its cursor."""
        self._cursors[sensor] = ""

    @property
    def freshness(self) -> FreshnessState:
        """What Dagster's freshness daemon finds now."""
        node = defs.resolve_asset_graph().get(TABLE_HEALTH)
        with freeze_time(self.now):
            return asyncio.run(TimeWindowFreshnessPolicyEvaluator().evaluate_freshness(LoadingContextForTest(self._instance), node))


@pytest.fixture
def deployment(lake: Lake, instance: dg.DagsterInstance, tick: Tick) -> Deployment:
    return Deployment(instance, tick)


BOTH = ("snapshot_sensor", "fragmentation_sensor")


def test_while_the_sensors_tick_and_nothing_happens_the_page_stays_fresh(deployment: Deployment, instance: dg.DagsterInstance) -> None:
    deployment.pass_time(timedelta(minutes=11), *BOTH)
    assert deployment.freshness is FreshnessState.PASS
    told = instance.fetch_materializations(TABLE_HEALTH, limit=100).records
    assert len(told) == 1 + timedelta(minutes=10) // HEARTBEAT


def test_a_point_of_the_figures_comes_after_five_minutes_if_something_has_changed_and_after_a_reset(
    deployment: Deployment, instance: dg.DagsterInstance, lake: Lake
) -> None:
    def points() -> int:
        return len(instance.fetch_materializations(TABLE_FIGURES, limit=100).records)

    deployment.pass_time(timedelta(minutes=1), *BOTH)
    lake.append_small_files(3, 1)
    deployment.pass_time(timedelta(minutes=4), *BOTH)
    assert points() == 1
    deployment.pass_time(timedelta(minutes=1), *BOTH)
    assert points() == 2
    deployment.pass_time(timedelta(minutes=5), *BOTH)
    assert points() == 2
    deployment.reset("fragmentation_sensor")
    deployment.pass_time(timedelta(minutes=1), *BOTH)
    assert points() == 3


def test_when_snapshot_sensor_is_stopped_the_freshness_warns_and_then_fails(deployment: Deployment, instance: dg.DagsterInstance) -> None:
    deployment.pass_time(timedelta(minutes=2), *BOTH)
    assert deployment.freshness is FreshnessState.PASS
    deployment.pass_time(timedelta(minutes=25), "fragmentation_sensor")
    assert deployment.freshness is FreshnessState.WARN
    observed = instance.fetch_observations(TABLE_HEALTH, limit=1).records[0].asset_observation
    assert observed is not None
    assert (observed.description or "").startswith("nobody has looked for new snapshots for 2")
    assert "see that `snapshot_sensor` is on" in (observed.description or "")
    deployment.pass_time(timedelta(minutes=50), "fragmentation_sensor")
    assert deployment.freshness is FreshnessState.FAIL
    deployment.pass_time(timedelta(minutes=6), *BOTH)
    assert deployment.freshness is FreshnessState.PASS


def test_when_fragmentation_sensor_is_stopped_the_freshness_fails_too(deployment: Deployment) -> None:
    deployment.pass_time(timedelta(minutes=2), *BOTH)
    deployment.pass_time(timedelta(minutes=62), "snapshot_sensor")
    assert deployment.freshness is FreshnessState.FAIL


def test_a_page_of_few_tables_always_has_its_large_pictures_and_one_of_many_only_when_asked() -> None:
    def has_large(tables: int, *, large: bool) -> bool:
        table = TableOverview(ORDERS, 1, NodeMetrics(), HealthStatus.DUE, "1 task waits")
        return "pictures" in health_page(NAMES, replace(status(), tables=(table,) * tables), (), None, large=large)

    assert has_large(20, large=False)
    assert not has_large(21, large=False)
    assert has_large(21, large=True)


def scored(name: str, parts: ScoreParts | None, *, is_read: bool = True) -> TableOverview:
    score = HealthScore(parts, f"the files of {name}", "a MINOR is due")
    table = replace(ORDERS, name=name)
    return TableOverview(table, 1, NodeMetrics(), HealthStatus.DUE, "1 task waits", is_read=is_read, score=score)


def scores_now(*tables: TableOverview) -> str:
    return str(health_page(NAMES, replace(status(), tables=tables), (), None)["scores_now"].value).replace("\\\n", " ")


def test_the_page_begins_the_scores_with_the_lowest_and_leaves_out_tables_that_lose_nothing() -> None:
    text = scores_now(scored("a", ALL_POINTS), scored("b", ScoreParts.of(30, 40, 20)), scored("c", ScoreParts.of(0, 40, 20)))
    assert text == (
        "**lake.shop.c** 60 of 100 (small files 0/40, equality deletes 40/40, position deletes 20/20): the files of c; a MINOR is due\n\n"
        "**lake.shop.b** 90 of 100 (small files 30/40, equality deletes 40/40, position deletes 20/20): the files of b; a MINOR is due"
    )
    assert scores_now(scored("a", ALL_POINTS)) == "No table loses a point."


def test_the_page_shows_no_score_of_a_table_that_nobody_read() -> None:
    assert scores_now(scored("a", None, is_read=False)) == "No table was read yet."
    assert scores_now(scored("a", None)) == "**lake.shop.a** not known: the files of a; a MINOR is due"


def test_many_scores_with_long_sentences_are_shown_at_once() -> None:
    tables = [scored(f"{'long' * 20}_{number}", ScoreParts.of(number, 0, 0)) for number in range(30)]
    page = health_page(NAMES, replace(status(), tables=tuple(tables)), (), None)
    assert is_shown_at_once(str(page["scores_now"].value))
    assert str(page["scores_now"].value).count(" of 100 (small files ") >= 3


def test_another_score_is_a_change_that_is_told_after_a_minute() -> None:
    before, after = (replace(status(60), tables=(scored("a", ScoreParts.of(points, 40, 20)),)) for points in (30, 20))
    told = Told().next(replace(before, at=NOW))
    assert told is not None
    assert told.next(before) is None
    assert told.next(after) is not None
