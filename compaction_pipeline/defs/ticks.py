"""What the ticks of all our sensors have in common.

A tick is broken off when `dagster dev` ends. Without this, Dagster would wait half a minute for it. A tick does nothing before a catalog is
registered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from threading import Event
from typing import ParamSpec, TypeVar

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.insight.overview import NO_CATALOG
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.resources import services_of
from compaction_pipeline.ending.dagster_dev import Abandoned, abandoned_when, end_server_with_it, ends_soon

P = ParamSpec("P")
T = TypeVar("T")
BROKEN_OFF = "dagster dev is ending: this tick was broken off, and the next tick does its work"

Tick = Callable[[Names, dg.SensorEvaluationContext, Services], dg.SensorResult]


def ticking(
    names: Names,
    name: str,
    tick: Tick,
    *,
    every: int,
    description: str,
    job_name: str | None = None,
    events_of: Sequence[dg.AssetKey] = (),
) -> dg.SensorDefinition:
    """Make a sensor of a function. It is on by default, and ticks every `every` seconds. While no catalog is registered, it says so.

    A sensor either asks for runs of `job_name`, or starts none. `events_of` are the assets whose events a sensor without runs writes;
    Dagster shows the sensor on their pages.
    """

    @dg.sensor(
        name=names.of(name),
        job_name=names.of(job_name) if job_name is not None else None,
        asset_selection=dg.AssetSelection.assets(*events_of) if events_of else None,
        minimum_interval_seconds=every,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=description,
        required_resource_keys={names.compaction},
    )
    @abandoned_when_dagster_ends
    def evaluate(context: dg.SensorEvaluationContext, **resources: object) -> dg.SensorResult:
        # Who calls the sensor as a function hands the resources over, and the daemon does not.
        services = services_of(names, context)
        result = tick(names, context, services) if services.explore_catalogs.entries() else dg.SensorResult(skip_reason=NO_CATALOG)
        if job_name is None and result.run_requests:
            # Dagster would start a run of the selected assets, without a partition.
            raise dg.DagsterInvariantViolationError(f"{name} has no job, so it may ask for no run; please report this")
        return result

    return evaluate


def abandoned_when_dagster_ends(
    tick: Callable[P, T], ends: Callable[[], Event | None] = ends_soon, end_server: Callable[[], None] = end_server_with_it
) -> Callable[P, T | dg.SkipReason]:
    """Wrap a sensor's function, so that it answers at once when `dagster dev` ends. Its cursor stays, so no work is skipped."""

    @wraps(tick)
    def evaluate(*arguments: P.args, **named: P.kwargs) -> T | dg.SkipReason:
        event = ends()
        if event is None:
            return tick(*arguments, **named)
        end_server()
        try:
            return abandoned_when(event, lambda: tick(*arguments, **named))
        except Abandoned:
            return dg.SkipReason(BROKEN_OFF)

    return evaluate
