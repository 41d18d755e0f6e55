"""The row of a table holds four values, each with one writer. The new column `index_state` names the state of its index.

Before, a flag said whether the index was complete, and other columns implied the rest. This step computes the state from them. It does
not change indexed files, nodes and tasks. A table that a commit had marked as outdated gets the state READING, so it is read again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_WHOLE = "table_uuid IS NOT NULL AND layout IS NOT NULL AND metadata_location IS NOT NULL AND refreshed_at IS NOT NULL"
_STATE = f"""
    CASE
        WHEN refusal IS NOT NULL THEN 'REFUSED'
        WHEN complete AND {_WHOLE} AND known_snapshot_id IS NULL THEN 'EMPTY'
        WHEN complete AND {_WHOLE} THEN 'COMPLETE'
        WHEN problem IS NOT NULL THEN 'FAILED'
        WHEN table_uuid IS NOT NULL AND layout IS NOT NULL THEN 'READING'
        ELSE 'UNREAD'
    END
"""
_KEPT = (
    "last_old_spec_delete_at, warning, last_planned_at, plan_reason, "
    "last_committed_at, commit_problem, commit_failures, commit_retry_at, paused"
)


def upgrade() -> None:
    op.create_table(
        "compaction_table_new",
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("catalog", sa.String(), nullable=False),
        sa.Column("index_state", sa.String(length=32), nullable=False),
        sa.Column("index_version", sa.String(), nullable=False, server_default=""),
        sa.Column("table_uuid", sa.String(), nullable=True),
        sa.Column("layout", sa.Text(), nullable=True),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("sequence_number", sa.BigInteger(), nullable=True),
        sa.Column("metadata_location", sa.Text(), nullable=True),
        sa.Column("read_id", sa.String(), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("read_landed", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("last_old_spec_delete_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("warning", sa.Text(), nullable=True),
        sa.Column("last_planned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("plan_reason", sa.Text(), nullable=True),
        sa.Column("plan_problem", sa.Text(), nullable=True),
        sa.Column("distrusted_read_id", sa.String(), nullable=True),
        sa.Column("landed", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("last_committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("commit_problem", sa.Text(), nullable=True),
        sa.Column("commit_failures", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("commit_retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("identifier"),
    )
    op.execute(
        f"""
        INSERT INTO compaction_table_new (
            identifier, catalog, index_state, table_uuid, layout, snapshot_id, sequence_number, metadata_location,
            read_id, read_at, problem, {_KEPT}
        )
        SELECT
            identifier, catalog, state,
            CASE WHEN layout IS NOT NULL AND table_uuid IS NOT NULL THEN table_uuid END,
            CASE WHEN layout IS NOT NULL AND table_uuid IS NOT NULL THEN layout END,
            known_snapshot_id,
            CASE WHEN state = 'COMPLETE' THEN known_sequence_number END,
            CASE WHEN state IN ('REFUSED', 'COMPLETE', 'EMPTY') THEN metadata_location END,
            CASE WHEN state IN ('COMPLETE', 'EMPTY') THEN 'before 0007' END,
            refreshed_at,
            COALESCE(refusal, problem), {_KEPT}
        FROM (SELECT *, {_STATE} AS state FROM compaction_table) AS old
        """
    )
    op.drop_table("compaction_table")
    op.rename_table("compaction_table_new", "compaction_table")
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER INDEX compaction_table_new_pkey RENAME TO compaction_table_pkey")
