"""The asset `waiting_jobs`: what instances of the dependency center wait for, and how the center does. `queue_sensor` materializes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.insight.overview import SHOWN
from compaction_pipeline.defs.choices import owners_of
from compaction_pipeline.defs.markdown import fitting, plain, wrapped
from compaction_pipeline.defs.metadata import Column, table_of, unbroken
from compaction_pipeline.defs.names import GROUP, Names
from compaction_pipeline.services.dependencies.why import Missing, Why
from compaction_pipeline.settings import Settings

_NAMED = 3
"""So many things that an instance waits for are named. `compaction-pipeline dependencies why` names all."""


def waiting_jobs(names: Names, settings: Settings) -> dg.AssetSpec:
    """The asset of the jobs of the dependency center."""
    return dg.AssetSpec(
        names.waiting_jobs,
        group_name=GROUP,
        owners=owners_of(settings),
        kinds={"job"},
        description=(
            "Jobs of the dependency center that wait: since when, for what, and who makes it, the oldest first. The plots show how many "
            "wait, are ready, run or failed, how long the first ready one has waited for its receiver, the delay at p99 from what was "
            "needed to READY, and how many events detectors missed in the last day. `queue_sensor` materializes it when something has "
            "changed.\n\n"
            "`compaction-pipeline dependencies why JOB TIME` names everything that one waits for."
        ),
    )


def waiting_event(names: Names, services: Services) -> tuple[dg.AssetMaterialization, Sequence[object]] | None:
    """What to tell, and of what it is made; None while the center has no jobs."""
    if not services.center.projects():
        return None
    oldest = services.center.instances(InstanceQuery(state=InstanceState.WAITING, most=SHOWN, oldest_first=True))
    waiting = [why for one in oldest if not one.part for why in _why(services, one)]
    figures = services.center_figures()
    unclaimed, delay = figures.age(figures.unclaimed_since), figures.delay(0.99)
    counted: Mapping[str, int] = {f"{state.value.lower()}_instances_count": count for state, count in figures.instances.items()}
    metadata: dict[str, dg.MetadataValue] = {
        "waiting_now": dg.MetadataValue.md(_said([_in_words(why) for why in waiting])),
        "waiting": table_of(waiting, _COLUMNS),
        **{name: dg.MetadataValue.int(count) for name, count in counted.items()},
        "missed_events_count": dg.MetadataValue.int(figures.missed),
        "alerts_count": dg.MetadataValue.int(sum(figures.alerts.values())),
        "oldest_unclaimed_seconds": dg.MetadataValue.float(round(unclaimed.total_seconds(), 1)),
    }
    if delay is not None:
        metadata["p99_delay_seconds"] = dg.MetadataValue.float(round(delay.total_seconds(), 3))
    state = (counted, [_in_words(why) for why in waiting], figures.missed, figures.alerts, unclaimed // timedelta(minutes=5), delay)
    return dg.AssetMaterialization(names.waiting_jobs, metadata=metadata), state


def _why(services: Services, one: Instance) -> Iterator[Why]:
    """Why it waits; nothing when its job was removed, or got another calendar, since it was read."""
    with suppress(NotFoundError, ConfigError):
        yield services.center.why(one.job, one.biz, one.origin)


def _said(texts: Sequence[str]) -> str:
    """As many of these texts as Dagster shows without a button."""
    return fitting(lambda count: "\n\n".join(texts[:count]), range(len(texts), 0, -1)) if texts else "No job waits."


def _waits_for(why: Why) -> str:
    if why.busy is not None:
        return f"the {why.busy} instance of its business time, which runs"
    if not why.waits_for:
        return "nothing any more: it starts now"
    named = [_named(missing) for missing in why.waits_for[:_NAMED]]
    others = len(why.waits_for) - _NAMED
    return ", ".join(named) + (f" and {others} more" if others > 0 else "")


def _named(missing: Missing) -> str:
    made_by = f" (made by {', '.join(missing.produced_by)})" if missing.produced_by and not missing.subject.startswith("job=") else ""
    return f"{missing.subject}{made_by}" + (f": {missing.problem}" if missing.problem else "")


def _in_words(why: Why) -> str:
    one = why.instance
    text = f"since {one.made_at:%Y-%m-%d %H:%M} UTC for {_waits_for(why)}"
    return f"**{plain(one.key)}**\\\n{wrapped(text)}"


_COLUMNS: tuple[Column[Why], ...] = (
    ("instance", "string", "job, business time, origin and generation", lambda why: unbroken(why.instance.key)),
    ("since", "string", "when it was made, in UTC", lambda why: unbroken(f"{why.instance.made_at:%Y-%m-%d %H:%M:%S}")),
    ("missing", "int", "how many things are not there", lambda why: len(why.waits_for)),
    ("waits_for", "string", "the first of them", lambda why: unbroken(_waits_for(why))),
    (
        "made_by",
        "string",
        "the jobs that make them",
        lambda why: unbroken(", ".join(sorted({job for missing in why.waits_for for job in missing.produced_by}))),
    ),
)
