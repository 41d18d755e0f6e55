"""Routes by which people look at what is planned for a table, and ask for work on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel

from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import TablePaused, TableRefused
from compaction_pipeline.core.fragmentation.verdict import NOT_ADMITTED, PlanReasonCode
from compaction_pipeline.core.insight.plan_value import plan_value
from compaction_pipeline.core.planning.plan import CompactionPlan, PlanRequest
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType, TaskAction
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.services.one_table import OneTable
from compaction_pipeline.services.planning.plan_tables import PlanTables
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs

_PLANS_AT_ONCE = 2
"""So many plans are made at a time. A plan reads the files of a table, and must not keep heartbeats waiting."""
_MOST_NODES = 1_000
_Table = Annotated[str, Path(max_length=2_000, description="catalog.namespace.table")]
_Type = Annotated[
    CompactionType | None,
    Query(description="Only this kind of work, whatever the thresholds say. Without it, the table's own thresholds decide."),
]
_Nodes = Annotated[
    tuple[Annotated[str, Query(max_length=2_000)], ...],
    Query(max_length=_MOST_NODES, description="Only this node: its key, or its text as a plan shows it. Repeat it for several."),
]


class PlannedTask(BaseModel):
    """A task of a plan. The files and bytes after it, and the GB-hours that it takes, are predicted. GB-hours are null when unknown."""

    node: str
    type: CompactionType
    action: TaskAction
    input_files: int
    input_bytes: int
    delete_files: int
    predicted_files: int
    predicted_bytes: int
    predicted_gb_hours: float | None
    group: str | None


class NodeAnswer(BaseModel):
    """What a plan decided about one node, and why. `type` is the kind of work that is due; null when none is."""

    node: str
    type: CompactionType | None
    planned: bool
    code: PlanReasonCode
    reason: str
    data_files: int
    small_files: int
    delete_files: int


class PlanAnswer(BaseModel):
    """What would be done now, and why every other node is left alone. The figures after it are those of the whole table."""

    table: str
    code: PlanReasonCode
    reason: str
    tasks: list[PlannedTask]
    nodes: list[NodeAnswer]
    predicted_files: int
    predicted_delete_files: int
    predicted_bytes: int


class Asked(BaseModel):
    """The tasks that wait now, and the reason for them or for having none."""

    table: str
    code: PlanReasonCode
    reason: str
    tasks: list[str]


class Switched(BaseModel):
    """Whether the table is paused now, and whether this request has changed that."""

    table: str
    paused: bool
    changed: bool


def table_routes(tables: ReadTables, plans: PlanTables, one_table: OneTable, catalogs: ExploreCatalogs, guard: Guard) -> APIRouter:
    """The routes below `/api/v1` about one table."""
    routes = APIRouter(tags=["tables"], responses=ANSWERS)
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(guard.needs())]
    limiter = CapacityLimiter(_PLANS_AT_ONCE)

    def request_of(table: TableIdentifier, kind: CompactionType | None, nodes: Sequence[str]) -> PlanRequest:
        named = tables.named_nodes(table, nodes) if nodes else None
        return PlanRequest((kind,) if kind is not None else None, named, force=kind is not None)

    def explained(table: TableIdentifier, kind: CompactionType | None, nodes: Sequence[str]) -> CompactionPlan:
        return plans.explain(table, request_of(table, kind, nodes))

    def asked(table: TableIdentifier, kind: CompactionType | None, nodes: Sequence[str]) -> Asked:
        planned = one_table.plan_nodes(table, request_of(table, kind, nodes))
        reason = planned.plan.reason
        if reason.code is PlanReasonCode.PAUSED:
            resume = f"POST /api/v1/tables/{quote(str(table), safe='')}/resume"
            raise TablePaused(f"nothing is planned for {table}: {reason.text}, and so does `{resume}`")
        if reason.code in NOT_ADMITTED:
            raise TableRefused(f"nothing is planned for {table}: {reason.text}")
        return Asked(table=str(table), code=reason.code, reason=reason.text, tasks=[task.task_id for task in planned.tasks])

    @routes.get("/tables/{table}/plan", dependencies=reader)
    async def plan(table: _Table, type: _Type = None, node: _Nodes = ()) -> PlanAnswer:
        """What would be done now, also on a table that is paused or observed. Nothing is queued.

        The files are those that were read last: a server looks at each table twice a minute.
        """
        identifier = TableIdentifier.parse(table)
        made = await to_thread.run_sync(partial(explained, identifier, type, node), limiter=limiter)
        return PlanAnswer.model_validate(plan_value(identifier, made))

    @routes.post("/tables/{table}/compact", status_code=202, dependencies=admin)
    async def compact(table: _Table, type: _Type = None, node: _Nodes = ()) -> Asked:
        """Read and plan a table now, and let its tasks go before those of ticks.

        Optimizers merge them, or the runs of Dagster. Ticks commit what is merged, once in the table's `self-optimizing.commit.interval`.
        """
        return await to_thread.run_sync(partial(asked, TableIdentifier.parse(table), type, node), limiter=limiter)

    @routes.post("/tables/{table}/pause", dependencies=admin)
    def pause(table: _Table) -> Switched:
        """Leave a table alone. It is still measured, but nothing is planned for it, and no waiting task begins.

        Tasks that run now are finished, and what is merged is committed. Waiting tasks have their turn after `resume`.
        """
        changed = catalogs.pause(TableIdentifier.parse(table))
        return Switched(table=table, paused=True, changed=bool(changed))

    @routes.post("/tables/{table}/resume", dependencies=admin)
    def resume(table: _Table) -> Switched:
        """Look after a paused table again."""
        changed = catalogs.resume(TableIdentifier.parse(table))
        return Switched(table=table, paused=False, changed=bool(changed))

    return routes
