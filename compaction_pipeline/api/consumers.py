"""Routes by which consumers register what they have read of a table, so that the rest does not expire."""

from __future__ import annotations

from functools import partial
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
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import DEFAULT_DAYS, MOST_DAYS, Consumer
from compaction_pipeline.services.upkeep.keep_consumers import KeepConsumers

_AT_ONCE = 4
"""So many registrations are taken at a time. Each loads the table's metadata, and must not keep heartbeats waiting."""
_Table = Annotated[str, Path(max_length=2_000, description="catalog.namespace.table")]
_Name = Annotated[str, Path(max_length=100)]


class ConsumerBody(BaseModel):
    """The last snapshot that a consumer has read, and for how many days what comes after it has to stay."""

    model_config = ConfigDict(extra="forbid")

    snapshot_id: int = Field(ge=1, lt=2**63)
    days: float = Field(default=DEFAULT_DAYS, gt=0, le=MOST_DAYS)


def consumer_routes(consumers: KeepConsumers, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` about consumers."""
    routes = APIRouter(tags=["consumers"], responses=ANSWERS)
    needs_writer = guard.needs(Role.WRITER)
    reader, writer = [Depends(guard.needs(Role.READER))], [Depends(needs_writer)]
    body_from = bodies.of(ConsumerBody, needs_writer, body_bounds.OTHER)
    limiter = CapacityLimiter(_AT_ONCE)

    @routes.get("/consumers", dependencies=reader, response_model=None, responses=plain_answer(list[Consumer]))
    def registered(table: Annotated[str | None, Query(max_length=2_000)] = None) -> list[Any]:
        """The registered consumers of all tables, or of one. `missing_at` says when an expiry found that a snapshot is gone."""
        return [plain(one) for one in consumers.consumers(TableIdentifier.parse(table) if table is not None else None)]

    @routes.put(
        "/tables/{table}/consumers/{name}",
        dependencies=writer,
        openapi_extra=body_of(ConsumerBody),
        response_model=None,
        responses=plain_answer(Consumer),
    )
    async def register(table: _Table, name: _Name, body: ConsumerBody = Depends(body_from)) -> Any:
        """Register the last snapshot that a consumer has read. It, and every later one of its branch, stays until the registration ends.

        Send it again after each read: it replaces the snapshot and the end.
        """
        verb = partial(consumers.set, TableIdentifier.parse(table), name, body.snapshot_id, body.days)
        return plain(await to_thread.run_sync(verb, limiter=limiter))

    @routes.delete("/tables/{table}/consumers/{name}", status_code=204, dependencies=writer)
    def remove(table: _Table, name: _Name) -> None:
        """End a registration. The next expiry may remove what only this consumer needed."""
        consumers.remove(TableIdentifier.parse(table), name)

    return routes
