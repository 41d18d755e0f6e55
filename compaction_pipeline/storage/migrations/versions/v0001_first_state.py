"""The first version: catalogs, tables, nodes, files, tasks, attempts, records and leases. `storage/schema.py` gives the reasons."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_catalog",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("observe", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "compaction_lease",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "compaction_manifest",
        sa.Column("manifest_id", sa.Integer(), nullable=False),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("manifest_id"),
    )
    op.create_index("compaction_manifest_path", "compaction_manifest", ["identifier", "path"], unique=True)
    op.create_table(
        "compaction_node",
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=True),
        sa.Column("first_seen", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_done", sa.Text(), nullable=False),
        sa.Column("changed_snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("failing", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_index("compaction_node_identifier", "compaction_node", ["identifier"], unique=False)
    op.create_table(
        "compaction_partition",
        sa.Column("partition_id", sa.Integer(), nullable=False),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("partition_id"),
    )
    op.create_index("compaction_partition_digest", "compaction_partition", ["identifier", "digest"], unique=True)
    op.create_table(
        "compaction_record",
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("mirrored", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("record_id"),
    )
    op.create_index("compaction_record_created_at", "compaction_record", ["created_at"], unique=False)
    op.create_index("compaction_record_identifier", "compaction_record", ["identifier", "created_at"], unique=False)
    op.create_index("compaction_record_status", "compaction_record", ["status", "mirrored"], unique=False)
    op.create_table(
        "compaction_table",
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("catalog", sa.String(), nullable=False),
        sa.Column("table_uuid", sa.String(), nullable=True),
        sa.Column("head_snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("known_snapshot_id", sa.BigInteger(), nullable=True),
        sa.Column("known_sequence_number", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=True),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("dropped", sa.Boolean(), nullable=False),
        sa.Column("refusal", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("warning", sa.Text(), nullable=True),
        sa.Column("last_planned_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_committed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("plan_reason", sa.Text(), nullable=True),
        sa.Column("refreshed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_old_spec_delete_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("identifier"),
    )
    op.create_table(
        "compaction_task",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("exclusive_node", sa.Text(), nullable=True),
        sa.Column("planned", sa.Text(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=True),
        sa.Column("owner", sa.String(), nullable=True),
        sa.Column("lease_expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("record_id", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_index("compaction_task_identifier", "compaction_task", ["identifier", "status"], unique=False)
    op.create_index("compaction_task_poll", "compaction_task", ["status", "priority", "created_at", "task_id"], unique=False)
    op.create_index("compaction_task_record", "compaction_task", ["record_id"], unique=False)
    op.create_table(
        "compaction_attempt",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempt_id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("outcome", sa.String(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["task_id"], ["compaction_task.task_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )
    op.create_index("compaction_attempt_id", "compaction_attempt", ["attempt_id"], unique=True)
    op.create_table(
        "compaction_file",
        sa.Column("manifest_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("partition_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("content", sa.String(length=32), nullable=False),
        sa.Column("spec_id", sa.Integer(), nullable=False),
        sa.Column("file_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("record_count", sa.BigInteger(), nullable=False),
        sa.Column("data_sequence_number", sa.BigInteger(), nullable=False),
        sa.Column("added_snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("equality_ids", sa.Text(), nullable=True),
        sa.Column("referenced_data_file", sa.Text(), nullable=True),
        sa.Column("path_lower", sa.Text(), nullable=True),
        sa.Column("path_upper", sa.Text(), nullable=True),
        sa.Column("sort_order_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["manifest_id"],
            ["compaction_manifest.manifest_id"],
        ),
        sa.PrimaryKeyConstraint("manifest_id", "ordinal"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "compaction_task_input",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["compaction_task.task_id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("task_id", "ordinal"),
        sqlite_with_rowid=False,
    )
