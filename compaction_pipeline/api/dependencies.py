"""Routes by which outside schedulers ask whether the data of tables is ready, and by which writers report that it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.dependencies.readiness import Readiness, TableWatermark
from compaction_pipeline.core.dependencies.ready_time import question
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness

_AT_ONCE = 4
"""So many questions are answered at a time. Each loads the table's metadata, and must not keep heartbeats waiting."""
MOST_ASKED = 500
"""So many partitions may be asked for by one request."""
_Table = Annotated[str, Path(max_length=2_000, description="catalog.namespace.table")]
_Partition = Annotated[str, Field(max_length=4_000)]


class ReadyBody(BaseModel):
    """A partition, named as in the paths of its files (`day=2026-01-01`), and whether it is ready. False takes a report back."""

    model_config = ConfigDict(extra="forbid")

    partition: _Partition
    ready: bool = True


class AwaitBody(BaseModel):
    """What the receiver of callbacks is to be told of: partitions, or a window of time."""

    model_config = ConfigDict(extra="forbid")

    partitions: list[_Partition] = Field(default=[], max_length=MOST_ASKED)
    start: str | None = Field(default=None, alias="from", max_length=100)
    end: str | None = Field(default=None, alias="to", max_length=100)


class ReadyAnswer(BaseModel):
    """Whether all that was asked for is ready, and the answer to each question in the order of the request."""

    ready: bool
    table: str
    answers: list[Any]


def dependency_routes(readiness: ReadReadiness, tell: TellReadiness | None, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` about readiness. `tell` is None where no receiver of callbacks is set."""
    routes = APIRouter(tags=["readiness"], responses=ANSWERS)
    needs_writer = guard.needs(Role.WRITER)
    needs_reader = guard.needs(Role.READER)
    reader, writer = [Depends(needs_reader)], [Depends(needs_writer)]
    await_from = bodies.of(AwaitBody, needs_reader, body_bounds.OTHER)
    body_from = bodies.of(ReadyBody, needs_writer, body_bounds.OTHER)
    limiter = CapacityLimiter(_AT_ONCE)

    @routes.get("/tables/{table}/ready", dependencies=reader)
    async def ready(
        table: _Table,
        partition: Annotated[list[_Partition], Query(max_length=MOST_ASKED)] = [],  # noqa: B006 - FastAPI copies it.
        start: Annotated[str | None, Query(alias="from", max_length=100)] = None,
        end: Annotated[str | None, Query(alias="to", max_length=100)] = None,
    ) -> ReadyAnswer:
        """Whether partitions are ready (`partition=day=2026-01-01`, several times), or all that overlap a window (`from`, `to`).

        The table's metadata is loaded once, however many are asked for.
        """
        identifier, asked = TableIdentifier.parse(table), question(partition, start, end)
        return _answer(identifier, await to_thread.run_sync(readiness.answers, identifier, asked, limiter=limiter))

    @routes.get("/tables/{table}/watermark", dependencies=reader, response_model=None, responses=plain_answer(TableWatermark))
    async def watermark(table: _Table) -> Any:
        """Up to which time the data of a table is complete, as its writers promise; `watermark` is null when they promise nothing."""
        return plain(await to_thread.run_sync(readiness.watermark, TableIdentifier.parse(table), limiter=limiter))

    @routes.post(
        "/tables/{table}/ready",
        dependencies=writer,
        openapi_extra=body_of(ReadyBody),
        response_model=None,
        responses=plain_answer(Readiness),
    )
    async def report(table: _Table, body: ReadyBody = Depends(body_from)) -> Any:
        """Report that a partition is ready, or take that back. It counts under the rule `reported`; the answer says which rule is set."""
        verb = readiness.report if body.ready else readiness.withdraw
        return plain(await to_thread.run_sync(verb, TableIdentifier.parse(table), body.partition, limiter=limiter))

    @routes.post("/tables/{table}/awaited", dependencies=reader, openapi_extra=body_of(AwaitBody))
    async def awaited(table: _Table, body: AwaitBody = Depends(await_from)) -> ReadyAnswer:
        """Let the receiver of callbacks be told for 7 days when these become ready, and when not any more. The answer is as of now."""
        if tell is None:
            raise ConfigError("this server tells nobody what is ready: set COMPACTION_READY_CALLBACK_URL, or ask by GET again and again")
        identifier, asked = TableIdentifier.parse(table), question(body.partitions, body.start, body.end, ("partitions", "from", "to"))
        return _answer(identifier, await to_thread.run_sync(tell.await_answers, identifier, asked, limiter=limiter))

    return routes


def _answer(table: TableIdentifier, answers: Sequence[Readiness]) -> ReadyAnswer:
    return ReadyAnswer(ready=all(one.ready for one in answers), table=str(table), answers=[plain(one) for one in answers])
