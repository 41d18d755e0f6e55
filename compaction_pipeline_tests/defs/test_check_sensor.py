"""The sensor of the checks on a real table: it stores an evaluation only when an outcome changes."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import dagster as dg
import pytest

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.checks.every_check import CHECKS
from compaction_pipeline.definitions import defs
from compaction_pipeline.foundations import utc_now
from compaction_pipeline_tests.defs.clocked import compaction_at
from compaction_pipeline_tests.defs.lake import Lake
from compaction_pipeline_tests.plain_names import COMPACTED_FILES

FROM_STATE = {check.name for check in CHECKS if not check.needs_tables and not check.reads_rows}


class Watch:
    """Ticks of the sensor. Each goes on from the last one, and `now` is the clock."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.now = utc_now()
        self._instance = instance
        self._cursor: str | None = None

    def tick(self) -> dict[str, dg.AssetCheckEvaluation]:
        """The evaluations that the tick stores, by check."""
        repository = defs.get_repository_def()
        with dg.build_sensor_context(
            instance=self._instance,
            repository_def=repository,
            cursor=self._cursor,
            resources={"compaction": compaction_at(lambda: self.now)},
        ) as context:
            result = cast(dg.SensorResult, repository.get_sensor_def("check_sensor")(context))
        assert not result.run_requests
        self._cursor = result.cursor
        assert len(result.cursor or "") < 500
        self.said = result.skip_reason.skip_message if result.skip_reason else None
        events = cast(list[dg.AssetCheckEvaluation], list(result.asset_events))
        return {event.check_name: event for event in events}


@pytest.fixture
def watch(lake: Lake, instance: dg.DagsterInstance) -> Watch:
    return Watch(instance)


def test_an_outcome_is_stored_when_it_changes_and_nothing_is_stored_at_rest(
    lake: Lake, services: Services, watch: Watch, instance: dg.DagsterInstance
) -> None:
    services.one_table.refresh(Lake.identifier)
    services.plan_tables.judge(Lake.identifier)
    first = watch.tick()
    assert set(first) == FROM_STATE
    assert all(event.passed for event in first.values())
    assert watch.tick() == {}
    watch.now += timedelta(hours=2)
    instance.report_runless_asset_event(dg.AssetMaterialization(COMPACTED_FILES))
    late = watch.tick()
    (newest,) = instance.fetch_materializations(COMPACTED_FILES, limit=1).records
    # Without this tie Dagster compares times in whole seconds, and would call the evaluation outdated.
    assert {event.target_materialization_data and event.target_materialization_data.storage_id for event in late.values()} == {
        newest.storage_id
    }
    assert {name: event.passed for name, event in late.items()} == {"small_files_left": False, "due_work_on_time": False}
    assert "due_work_on_time: 2 of 2 nodes fail" in (watch.said or "")
    watch.now += timedelta(hours=1)
    assert watch.tick() == {}  # Only the age has changed.
    assert services.compact_tables.compact(Lake.identifier).committed
    services.one_table.look_again(Lake.identifier)
    mended = watch.tick()
    assert {name for name, event in mended.items() if event.passed} == {"small_files_left", "due_work_on_time"}
    assert watch.tick() == {}


def test_nothing_is_stored_for_a_check_without_an_answer_until_it_has_one(lake: Lake, services: Services, watch: Watch) -> None:
    services.one_table.refresh(Lake.identifier)
    assert FROM_STATE - set(watch.tick()) == {"small_files_left", "due_work_on_time"}
    services.plan_tables.judge(Lake.identifier)
    assert set(watch.tick()) == {"small_files_left", "due_work_on_time"}


def test_without_a_catalog_the_sensor_says_how_to_add_one(watch: Watch, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_HOME", str(tmp_path))
    assert watch.tick() == {}
    assert watch.said == "no catalog is registered: run `compaction-pipeline catalog add`"
