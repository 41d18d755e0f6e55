"""The PlanningStore: the decisions of the last plans about tables and nodes."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import update

from compaction_pipeline.core.fragmentation.verdict import NodeVerdict
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.tables.node_keys import long_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, writing
from compaction_pipeline.storage.node_rows import note_change, update_nodes
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.table_rows import planning_columns, unknown


class SqlPlanningStore(SqlStore):
    """Decisions of plans in the state database."""

    def save(self, table: TableIdentifier, planning: TablePlanning) -> None:
        statement = update(schema.table_state).where(schema.table_state.c.identifier == str(table))
        with writing(self._engine) as connection:
            if connection.execute(statement.values(planning_columns(planning))).rowcount == 0:
                raise unknown(table)

    def save_verdicts(self, table: TableIdentifier, verdicts: Sequence[NodeVerdict]) -> None:
        rows = [{"identity": long_key(table, one.node), "verdict": one, "failing": one.failing} for one in verdicts]
        with writing(self._engine) as connection:
            lock(connection, f"nodes {table}")
            note_change(connection, table)
            update_nodes(connection, rows)
