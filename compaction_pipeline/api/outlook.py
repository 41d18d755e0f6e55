"""Routes that look ahead: when instances will be done, and what jobs should wait for."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.dependencies.center.subjects import MOST_BYTES
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.services.dependencies.forecast import LONGEST_HOURS, Forecast, ForecastJobs
from compaction_pipeline.services.dependencies.lineage import Lineage, ReadLineage

_Some = Annotated[str | None, Query(max_length=MOST_BYTES)]


def outlook_routes(forecasts: ForecastJobs, reads: ReadLineage, guard: Guard) -> APIRouter:
    """Routes below `/api/v1/dependencies` that change nothing. Each answers from the state database alone."""
    reader = [Depends(guard.needs(Role.READER))]
    routes = APIRouter(prefix="/dependencies", tags=["dependencies"], responses=ANSWERS, dependencies=reader)

    @routes.get("/forecast", response_model=None, responses=plain_answer(Forecast))
    def forecast(job: _Some = None, project: _Some = None, hours: Annotated[float, Query(gt=0, le=LONGEST_HOURS)] = 24) -> Any:
        """When instances will be ready and done, as usual and when late, what holds each up, and how it stands with promises."""
        return plain(forecasts.forecast(job=job, project=project, hours=hours))

    @routes.get("/lineage", response_model=None, responses=plain_answer(Lineage))
    def lineage(project: _Some = None) -> Any:
        """Which jobs should wait for others by what they read, and what owners of jobs should look at."""
        return plain(reads.lineage(project))

    return routes
