"""Virtual jobs of a project's file are external assets of Dagster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from compaction_pipeline.automation import virtual_jobs
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period
from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.defs.ready_windows import window_of

SINCE = {"hour": "2026-03-29T04", "day": "2026-03-28", "week": "2026-W13", "month": "2026-03"}


def specs(tmp_path: Path, *jobs: dict[str, Any], **more: Any) -> list[dg.AssetSpec]:
    path = tmp_path / "sales.yaml"
    path.write_text(yaml.safe_dump({"project": "sales", "jobs": list(jobs), **more}))
    return virtual_jobs(path)


@pytest.mark.parametrize("period", SINCE)
def test_a_virtual_job_is_an_external_asset_whose_partitions_are_its_business_times(tmp_path: Path, period: str) -> None:
    job = {"name": "raw.events", "period": period, "virtual": True, "since": SINCE[period], "owner": "team a", "parts": ["eu", "us"]}
    (spec,) = specs(tmp_path, job, zone="Europe/Berlin")
    assert spec.key == dg.AssetKey(["sales", "raw.events"])
    assert (spec.metadata["owner"], spec.metadata["parts"]) == ("team a", "eu, us")
    calendar = Calendar(Period(period.upper()), "Europe/Berlin")
    time = calendar.parse(SINCE[period])
    assert isinstance(spec.partitions_def, dg.TimeWindowPartitionsDefinition)
    first = spec.partitions_def.get_first_partition_key()
    assert first is not None
    assert window_of(spec.partitions_def, first) == Window(calendar.start(time), calendar.end(time))


def test_what_is_started_is_no_asset_and_a_file_without_virtual_jobs_has_none(tmp_path: Path) -> None:
    load = {"name": "load", "period": "day", "receiver": "airflow", "needs": [{"job": "of.another.project"}]}
    assert specs(tmp_path, load) == []
    made = {"name": "copy", "period": "day", "made-by": {"asset": "shop/daily"}}
    (spec,) = specs(tmp_path, load, made)
    assert [dep.asset_key for dep in spec.deps] == [dg.AssetKey(["shop", "daily"])]
    assert spec.partitions_def is None
    definitions = dg.Definitions(assets=[spec, dg.AssetSpec("report", deps=[spec])])
    assert {one.key for one in definitions.resolve_all_asset_specs()} == {spec.key, dg.AssetKey("report"), dg.AssetKey(["shop", "daily"])}


def test_a_file_that_is_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="job copy: 'period' is 'year'"):
        specs(tmp_path, {"name": "copy", "period": "year", "virtual": True})
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        virtual_jobs(tmp_path / "none.yaml")
    (tmp_path / "list.yaml").write_text("[]")
    with pytest.raises(ConfigError, match="'jobs'"):
        virtual_jobs(tmp_path / "list.yaml")
