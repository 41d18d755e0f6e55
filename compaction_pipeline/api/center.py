"""Routes of the dependency center: projects, instances, why one waits, reports of runs, and claims of what may start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query
from fastapi import Path as PathOf
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.dependencies.center.inbox import Quality, SetAside
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery
from compaction_pipeline.core.dependencies.center.subjects import MOST_BYTES
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.words import printable
from compaction_pipeline.services.dependencies.center import MOST_CLAIMED, DependencyCenter, JobSummary
from compaction_pipeline.services.dependencies.facts_set_aside import FactsSetAside
from compaction_pipeline.services.dependencies.reports import QualityReport, RunReport
from compaction_pipeline.services.dependencies.save_project import ProjectChange

_Text = Annotated[str, Field(max_length=MOST_BYTES)]
_Name = Annotated[str, Query(max_length=MOST_BYTES)]
_Number = Annotated[int, PathOf(ge=1, lt=2**63, description="The number of the fact.")]
_Some = Annotated[str | None, Query(max_length=MOST_BYTES)]
MOST_ASKED = 1_000
_INSTANCES, _INSTANCE = plain_answer(list[Instance]), plain_answer(Instance)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProjectBody(_Body):
    """The file of a project, as JSON. With `dry_run` nothing is saved, and the answer says what would change. `many` allows to make
    more than 10,000 instances at once."""

    file: dict[str, Any]
    dry_run: bool = False
    many: bool = False


class RunReportBody(_Body):
    """How a run is, or that an asset is there. `generation` is what the start told; `number` counts the reporter's own reports."""

    subject: _Text
    state: InstanceState
    generation: int | None = Field(default=None, ge=1, lt=2**31)
    number: int | None = Field(default=None, ge=0, lt=2**63)


class RunReportsBody(_Body):
    """Reports of one reporter. When one is wrong, none is taken."""

    reports: list[RunReportBody] = Field(min_length=1, max_length=MOST_ASKED)


class QualityReportBody(_Body):
    """Whether what the run of a job made is good. `generation` and `number` are as in reports of runs."""

    subject: _Text
    state: Quality
    generation: int | None = Field(default=None, ge=1, lt=2**31)
    number: int | None = Field(default=None, ge=0, lt=2**63)


class QualityReportsBody(_Body):
    """What one reporter tells of quality. When one is wrong, none is taken."""

    reports: list[QualityReportBody] = Field(min_length=1, max_length=MOST_ASKED)


class ClaimBody(_Body):
    """Who starts instances, and how many it takes now."""

    receiver: _Text
    most: int = Field(default=100, ge=1, le=MOST_CLAIMED)


class Delivery(_Body):
    """An instance that a receiver has."""

    id: int = Field(ge=1, lt=2**63)
    generation: int = Field(ge=1, lt=2**31)


class DeliveriesBody(_Body):
    """What a receiver has of what it claimed."""

    receiver: _Text
    instances: list[Delivery] = Field(max_length=MOST_CLAIMED)


class InstanceBody(_Body):
    """An instance: its job, its business time, and the backfill that made it."""

    job: _Text
    biz: _Text
    origin: _Text = SCHEDULED


class BackfillBody(_Body):
    """A backfill: its name, the jobs, and the business times of the first job from one to another."""

    name: _Text
    jobs: list[_Text] = Field(min_length=1, max_length=MOST_ASKED)
    first: _Text = Field(alias="from")
    last: _Text = Field(alias="to")


class Count(BaseModel):
    """How many."""

    count: int


def center_routes(center: DependencyCenter, facts: FactsSetAside, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1/dependencies`. Each answers from the state database alone."""
    routes = APIRouter(prefix="/dependencies", tags=["dependencies"], responses=ANSWERS)
    routes.include_router(_questions(center, guard))
    routes.include_router(_of_writers(center, guard, bodies))
    routes.include_router(_of_admins(center, guard, bodies))
    routes.include_router(_of_facts(facts, guard))
    return routes


def _questions(center: DependencyCenter, guard: Guard) -> APIRouter:
    routes, reader = APIRouter(), [Depends(guard.needs(Role.READER))]

    @routes.get("/jobs", dependencies=reader, response_model=None, responses=plain_answer(list[JobSummary]))
    def jobs() -> list[Any]:
        """The jobs of all projects, by name, with what each needs."""
        return [plain(one) for one in center.jobs()]

    @routes.get("/instances", dependencies=reader, response_model=None, responses=_INSTANCES)
    def instances(
        job: _Some = None,
        biz: _Some = None,
        origin: _Some = None,
        state: InstanceState | None = None,
        most: Annotated[int, Query(ge=1, le=MOST_ASKED)] = 100,
    ) -> list[Any]:
        """Instances, the newest first. `origin` is the name of a backfill, or empty for scheduled ones."""
        return [_with_key(one) for one in center.instances(InstanceQuery(job, biz, origin, state, most))]

    @routes.get("/ready", dependencies=reader)
    def ready(subject: _Name) -> Mapping[str, bool | None]:
        """Whether a subject is there, as far as the center was told; null when nobody told it."""
        return {"ready": center.ready(subject)}

    return routes


def _of_writers(center: DependencyCenter, guard: Guard, bodies: Bodies) -> APIRouter:
    needs_writer = guard.needs(Role.WRITER)
    routes, writer = APIRouter(), [Depends(needs_writer)]
    report_from = bodies.of(RunReportsBody, needs_writer, body_bounds.REPORT, secret=False)
    quality_from = bodies.of(QualityReportsBody, needs_writer, body_bounds.REPORT, secret=False)
    claim_from = bodies.of(ClaimBody, needs_writer, body_bounds.OTHER, secret=False)
    deliveries_from = bodies.of(DeliveriesBody, needs_writer, body_bounds.COMMIT_REPORT, secret=False)

    @routes.post("/reports", dependencies=writer, openapi_extra=body_of(RunReportsBody))
    def report(body: RunReportsBody = Depends(report_from), token: Token = Depends(needs_writer)) -> Mapping[str, list[str]]:
        """Report how runs are: RUNNING, SUCCEEDED or FAILED; or that an asset is there (SUCCEEDED) or not any more (FAILED)."""
        reports = [RunReport(one.subject, one.state, one.generation, one.number) for one in body.reports]
        return {"subjects": [str(subject) for subject in center.report_all(reports, token.name)]}

    @routes.post("/quality", dependencies=writer, openapi_extra=body_of(QualityReportsBody))
    def quality(body: QualityReportsBody = Depends(quality_from), token: Token = Depends(needs_writer)) -> Mapping[str, list[str]]:
        """Tell whether what runs made is good. Runs of a job with `quality` count once they have succeeded and this has passed."""
        told = [QualityReport(one.subject, one.state, one.generation, one.number) for one in body.reports]
        return {"subjects": [str(subject) for subject in center.tell_quality(told, token.name)]}

    @routes.post(
        "/claims", dependencies=writer, openapi_extra=body_of(ClaimBody), response_model=None, responses=plain_answer(list[Instance])
    )
    def claim(body: ClaimBody = Depends(claim_from), token: Token = Depends(needs_writer)) -> list[Any]:
        """What a receiver is to start now. Start each `key` once: it comes again until it is delivered, or its run is reported."""
        _refuse_other_receivers(token, body.receiver)
        return [_with_key(one) for one in center.claim(body.receiver, body.most)]

    @routes.post("/deliveries", dependencies=writer, openapi_extra=body_of(DeliveriesBody))
    def deliver(body: DeliveriesBody = Depends(deliveries_from), token: Token = Depends(needs_writer)) -> Count:
        """Say which of its claims a receiver has, so that they do not come again. The answer counts those that were open."""
        _refuse_other_receivers(token, body.receiver)
        return Count(count=center.delivered(body.receiver, [(one.id, one.generation) for one in body.instances]))

    return routes


def _of_admins(center: DependencyCenter, guard: Guard, bodies: Bodies) -> APIRouter:
    needs_admin = guard.needs(Role.ADMIN)
    routes, admin = APIRouter(), [Depends(needs_admin)]
    project_from = bodies.of(ProjectBody, needs_admin, body_bounds.REPORT, secret=False)
    again_from = bodies.of(InstanceBody, needs_admin, body_bounds.OTHER, secret=False)
    backfill_from = bodies.of(BackfillBody, needs_admin, body_bounds.OTHER, secret=False)

    @routes.put(
        "/project", dependencies=admin, openapi_extra=body_of(ProjectBody), response_model=None, responses=plain_answer(ProjectChange)
    )
    def save(body: ProjectBody = Depends(project_from)) -> Any:
        """Replace a project by its file; one without jobs removes it. The answer has what changed, and what first instances wait for."""
        return plain(center.save_project(body.file, dry_run=body.dry_run, many=body.many))

    @routes.post(
        "/runs-again", dependencies=admin, openapi_extra=body_of(InstanceBody), response_model=None, responses=plain_answer(Instance)
    )
    def run_again(body: InstanceBody = Depends(again_from)) -> Any:
        """Let an instance run again, as its next generation, when its data is there."""
        return _with_key(center.run_again(body.job, body.biz, body.origin))

    @routes.post("/backfills", dependencies=admin, openapi_extra=body_of(BackfillBody))
    def backfill(body: BackfillBody = Depends(backfill_from)) -> Count:
        """Make the instances of jobs for a span of business times, with an origin of their own. The answer counts those that are new."""
        return Count(count=center.backfill(body.name, body.jobs, body.first, body.last))

    return routes


def _of_facts(facts: FactsSetAside, guard: Guard) -> APIRouter:
    needs_admin = guard.needs(Role.ADMIN)
    routes = APIRouter(prefix="/set-aside")

    @routes.get("", dependencies=[Depends(needs_admin)], response_model=None, responses=plain_answer(list[SetAside]))
    def listed(most: Annotated[int, Query(ge=1, le=MOST_ASKED)] = 100) -> list[Any]:
        """The oldest facts that could not be applied: what each is about, who said it and when, and what was wrong."""
        return [plain(one) for one in facts.facts(most)]

    @routes.post("/{number}/again", response_model=None, responses=plain_answer(SetAside))
    def again(number: _Number, token: Token = Depends(needs_admin)) -> Any:
        """Let the leader apply a fact once more, in its next pass. One that fails again is set aside again."""
        return plain(facts.try_again(number, token.name))

    @routes.delete("/{number}", response_model=None, responses=plain_answer(SetAside))
    def remove(number: _Number, token: Token = Depends(needs_admin)) -> Any:
        """Remove a fact for good. The answer is the fact."""
        return plain(facts.remove(number, token.name))

    return routes


def _refuse_other_receivers(token: Token, receiver: str) -> None:
    if not token.serves(receiver):
        may = f"it may for {', '.join(token.receivers)}" if token.receivers else "it names no receiver"
        raise HTTPException(
            403,
            f"the token {token.name!r} may not claim for {printable(receiver, 100)!r}, because {may}: use the one of this receiver, or "
            "issue one with `compaction-pipeline token add --role writer --receiver NAME`",
        )


def _with_key(one: Instance) -> Any:
    value = plain(one)
    assert isinstance(value, dict)
    return {"key": one.key, **value}
