"""Routes that show how everything stands. They read the state database only."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.queue_counts import QueueCounts
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.insight.read_records import ReadRecords
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.services.insight.read_tasks import ReadTasks
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers
from compaction_pipeline.services.upkeep.read_upkeep import AnyRecord, ReadUpkeep

MOST_RECORDS = 1_000


def insight_routes(
    tables: ReadTables, records: ReadRecords, upkeep: ReadUpkeep, tasks: ReadTasks, optimizers: ServeOptimizers, guard: Guard
) -> APIRouter:
    """The routes below `/api/v1` that readers use."""
    routes = APIRouter(tags=["insight"], responses=ANSWERS, dependencies=[Depends(guard.needs(Role.READER))])

    @routes.get("/tables", response_model=None, responses=plain_answer(list[TableOverview]))
    def all_tables(catalog: Annotated[str | None, Query(max_length=200)] = None) -> list[Any]:
        """Every known table, or those of one catalog, sorted by name, with their health and figures."""
        return [plain(table) for table in tables.tables(catalog)]

    @routes.get("/records", response_model=None, responses=plain_answer(list[CompactionRecord]))
    def newest_records(
        table: Annotated[str | None, Query(max_length=2_000)] = None, limit: Annotated[int, Query(ge=1, le=MOST_RECORDS)] = 20
    ) -> list[Any]:
        """The newest compaction records of all tables, or of one, newest first."""
        identifier = TableIdentifier.parse(table) if table is not None else None
        return [plain(record) for record in records.records(identifier, limit)]

    @routes.get("/records/{record_id}", response_model=None, responses=plain_answer(CompactionRecord))
    def one_record(record_id: str) -> Any:
        """One record. A unique beginning of its id is enough."""
        return plain(records.record(RecordId(record_id)).record)

    @routes.get("/upkeep/records", response_model=None, responses=plain_answer(list[AnyRecord]))
    def newest_of_upkeep(
        table: Annotated[str | None, Query(max_length=2_000)] = None, limit: Annotated[int, Query(ge=1, le=MOST_RECORDS)] = 20
    ) -> list[Any]:
        """The newest records of upkeep of all tables, or of one, newest first: expiries, works that committed, and deleted orphan files."""
        identifier = TableIdentifier.parse(table) if table is not None else None
        return [plain(record) for record in upkeep.records(identifier, limit)]

    @routes.get("/queue", response_model=None, responses=plain_answer(QueueCounts))
    def queue() -> Any:
        """How many tasks have each status."""
        return plain(tasks.queue_counts())

    @routes.get("/optimizers", response_model=None, responses=plain_answer(list[Optimizer]))
    def registered() -> list[Any]:
        """The optimizers that are remembered, the oldest first."""
        return [plain(optimizer) for optimizer in optimizers.optimizers()]

    return routes
