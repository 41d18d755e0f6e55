"""Shows virtual jobs of a project of the dependency center as external assets, so that Dagster's graph has what is made elsewhere.

`compaction_pipeline.automation` exports it. It reads the project's file: loading a code location opens no database.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg

from compaction_pipeline.core.dependencies.center.jobs import DataJob
from compaction_pipeline.core.dependencies.center.periods import Period
from compaction_pipeline.core.dependencies.center.projects import virtual_jobs_of
from compaction_pipeline.core.dependencies.center.subjects import ASSET
from compaction_pipeline.services.yaml_file import yaml_value

_MOST_BYTES = 64 * 1024 * 1024


def virtual_jobs(file: str | Path) -> list[dg.AssetSpec]:
    """Return an external asset for each virtual job of a project's file, with the key `[project, job]`; none where it has no such job.

    One whose job says `since` has partitions by its period from there on, in its zone. Put them into the `assets` of your `Definitions`,
    and name them in the `deps` of your own assets. One that is `made-by` an asset depends on it. Raises ConfigError for a file that is no
    project.
    """
    given = yaml_value(Path(file), f"virtual_jobs got {str(file)!r}", _MOST_BYTES, "a project")
    said = {job.name: job for job in virtual_jobs_of(given)}
    files = {one["name"]: one for one in given["jobs"] if one["name"] in said} if isinstance(given, dict) else {}
    return [_spec(job, files[name]) for name, job in sorted(said.items())]


def _spec(job: DataJob, given: Mapping[str, Any]) -> dg.AssetSpec:
    maker = given.get("made-by")
    asset = maker.get(ASSET) if isinstance(maker, Mapping) else None
    metadata = {"owner": job.owner, "period": job.calendar.period.value, "zone": job.calendar.zone}
    many = {"parts": job.parts, "produces": job.produces, "made_by": (str(dict(maker)),) if isinstance(maker, Mapping) else ()}
    return dg.AssetSpec(
        dg.AssetKey([job.project, job.name]),
        deps=[dg.AssetKey.from_user_string(asset)] if isinstance(asset, str) else [],
        kinds={"job"},
        description=(
            f"A virtual job of the project `{job.project}`: it runs elsewhere, and its runs are told to the dependency center. "
            f"`compaction-pipeline dependencies why {job.name} TIME` says whether one is there, and what keeps it from coming."
        ),
        metadata={**metadata, **{name: ", ".join(values) for name, values in many.items() if values}},
        partitions_def=_partitions(job) if "since" in given else None,
    )


def _partitions(job: DataJob) -> dg.TimeWindowPartitionsDefinition:
    start, zone = job.calendar.start(job.since).astimezone(ZoneInfo(job.calendar.zone)).replace(tzinfo=None), job.calendar.zone
    if job.calendar.period is Period.HOUR:
        return dg.HourlyPartitionsDefinition(start, timezone=zone)
    if job.calendar.period is Period.DAY:
        return dg.DailyPartitionsDefinition(start, timezone=zone)
    if job.calendar.period is Period.WEEK:
        # Dagster's weeks begin on Sunday where nothing is said.
        return dg.WeeklyPartitionsDefinition(start, timezone=zone, day_offset=1)
    return dg.MonthlyPartitionsDefinition(start, timezone=zone)
