"""The route of writers: they report their commits."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.tables.commit_report import MOST_PARTITIONS, CommitReport
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline.services.tables.take_reports import TakeReports

_MOST_FILES = 2**31 - 1
_REPORTS_AT_ONCE = 4
"""So many reports are taken at a time. A report of an unknown table waits for a catalog, and must not keep heartbeats waiting."""


class AddedFiles(BaseModel):
    """How many files a commit added to a partition, named as in the paths of its files: `day=2026-11-22`, or "" without partitions."""

    model_config = ConfigDict(extra="forbid")

    partition: str = Field(default="", max_length=2_000)
    files: int = Field(ge=0, le=_MOST_FILES)


class CommitBody(BaseModel):
    """What a writer tells about a commit. Without `sequence_number`, a report of an old commit may cause a look at the table."""

    model_config = ConfigDict(extra="forbid")

    # Iceberg makes only positive ids, and writes -1 for "no snapshot".
    snapshot_id: int = Field(ge=1, lt=2**63)
    sequence_number: int = Field(default=0, ge=0, lt=2**63)
    added: list[AddedFiles] = Field(default=[], max_length=MOST_PARTITIONS)
    watermark: AwareDatetime | None = None
    """The time up to which the data of the table is complete with this commit. For writers that cannot write it into the summary."""


class CommitAnswer(BaseModel):
    """`accepted` is false when the commit is known already. `why` is a sentence for people."""

    accepted: bool
    why: str


def report_routes(take_reports: TakeReports, readiness: ReadReadiness, guard: Guard, bodies: Bodies) -> APIRouter:
    """The route below `/api/v1` that writers use."""
    writer = guard.needs(Role.WRITER)
    routes = APIRouter(tags=["writers"], responses=ANSWERS, dependencies=[Depends(writer)])
    commit_body = bodies.of(CommitBody, writer, body_bounds.COMMIT_REPORT)
    limiter = CapacityLimiter(_REPORTS_AT_ONCE)

    @routes.post("/tables/{table}/commits", openapi_extra=body_of(CommitBody))
    async def report_commit(table: Annotated[str, Path(max_length=2_000)], body: CommitBody = Depends(commit_body)) -> CommitAnswer:
        """Report a commit that has landed, so that its table is looked at within seconds. Nothing is planned from the report itself."""
        added: Counter[str] = Counter()
        for one in body.added:
            added[one.partition] += one.files
        report = CommitReport(TableIdentifier.parse(table), body.snapshot_id, body.sequence_number, dict(added))
        taken = await to_thread.run_sync(take_reports.take, report, limiter=limiter)
        if body.watermark is not None:
            await to_thread.run_sync(readiness.report_watermark, taken.table, body.snapshot_id, body.watermark, limiter=limiter)
        return CommitAnswer(accepted=taken.accepted, why=taken.why)

    return routes
