"""Routes that look ahead: when instances will be done, what jobs should wait for, and what must run again."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED
from compaction_pipeline.core.dependencies.center.subjects import MOST_BYTES
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.services.dependencies.forecast import LONGEST_HOURS, Forecast, ForecastJobs
from compaction_pipeline.services.dependencies.lineage import Lineage, ReadLineage
from compaction_pipeline.services.dependencies.repair import Repair, RepairJobs
from compaction_pipeline.services.dependencies.why import Why

_Name = Annotated[str, Query(max_length=MOST_BYTES)]
_First = Annotated[str, Query(alias="from", max_length=MOST_BYTES)]
_Last = Annotated[str | None, Query(alias="to", max_length=MOST_BYTES, description="The first one where nothing is said.")]
_Text = Annotated[str, Field(max_length=MOST_BYTES)]
_Some = Annotated[str | None, Query(max_length=MOST_BYTES)]


class Outlook(Protocol):
    """The use cases behind these routes."""

    @property
    def forecast_jobs(self) -> ForecastJobs: ...
    @property
    def read_lineage(self) -> ReadLineage: ...
    @property
    def repair_jobs(self) -> RepairJobs: ...

    def why(self, job: str, biz: str, origin: str) -> Why: ...


class RepairBody(BaseModel):
    """Which runs of a job did again or will, and the name of the backfill that is made of all that follows from them. Without `to`, it is
    the run of `from` alone."""

    model_config = ConfigDict(extra="forbid")

    job: _Text
    first: _Text = Field(alias="from")
    last: _Text | None = Field(default=None, alias="to")
    only_downstream: bool = False
    name: _Text


def outlook_routes(asked: Outlook, guard: Guard, bodies: Bodies) -> APIRouter:
    """Routes below `/api/v1/dependencies`. Each answers from the state database alone."""
    routes = APIRouter(prefix="/dependencies", tags=["dependencies"], responses=ANSWERS)
    routes.include_router(_questions(asked, guard))
    needs_admin = guard.needs(Role.ADMIN)
    repair_from = bodies.of(RepairBody, needs_admin, body_bounds.OTHER, secret=False)

    @routes.post(
        "/repairs",
        dependencies=[Depends(needs_admin)],
        openapi_extra=body_of(RepairBody),
        response_model=None,
        responses=plain_answer(Repair),
    )
    def launch(body: RepairBody = Depends(repair_from)) -> Any:
        """Launch what must run again after the runs of a job, as a backfill. The answer has its layers, and how many instances are new."""
        return plain(
            asked.repair_jobs.repair(body.job, body.first, body.last or body.first, only_downstream=body.only_downstream, launch=body.name)
        )

    return routes


def _questions(asked: Outlook, guard: Guard) -> APIRouter:
    routes = APIRouter(dependencies=[Depends(guard.needs(Role.READER))])

    @routes.get("/why", response_model=None, responses=plain_answer(Why))
    def why(job: _Name, biz: _Name, origin: _Name = SCHEDULED) -> Any:
        """What an instance waits for, who makes that and when it is expected, what it has found, and what it starts without."""
        return plain(asked.why(job, biz, origin))

    @routes.get("/forecast", response_model=None, responses=plain_answer(Forecast))
    def forecast(job: _Some = None, project: _Some = None, hours: Annotated[float, Query(gt=0, le=LONGEST_HOURS)] = 24) -> Any:
        """When instances will be ready and done, as usual and when late, what holds each up, and how it stands with promises."""
        return plain(asked.forecast_jobs.forecast(job=job, project=project, hours=hours))

    @routes.get("/lineage", response_model=None, responses=plain_answer(Lineage))
    def lineage(project: _Some = None) -> Any:
        """Which jobs should wait for others by what they read, and what owners of jobs should look at."""
        return plain(asked.read_lineage.lineage(project))

    @routes.get("/repair", response_model=None, responses=plain_answer(Repair))
    def repair(job: _Name, first: _First, last: _Last = None, only_downstream: bool = False) -> Any:
        """What must run again after the runs of a job, layer by layer. `POST …/repairs` launches it."""
        return plain(asked.repair_jobs.repair(job, first, last or first, only_downstream=only_downstream))

    return routes
