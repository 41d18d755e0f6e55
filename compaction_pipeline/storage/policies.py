"""The PolicyStore: what catalogs said about tables, in the rows of the tables."""

from __future__ import annotations

from sqlalchemy import update

from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.sql_store import SqlStore


class SqlPolicyStore(SqlStore):
    """Policies in the state database."""

    def save(self, table: TableIdentifier, policies: TablePolicies | None) -> None:
        self._write(update(schema.table_state).where(schema.table_state.c.identifier == str(table)).values(policies=policies))
