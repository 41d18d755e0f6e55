"""What is remembered of the readiness of tables: what heads said, what manifests said of partitions, answers, and reports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_ready_head",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("store", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("snapshot_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("at", moment, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_ready_reading",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("at", moment, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_ready_partition",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("place", sa.String(), primary_key=True),
        sa.Column("spec_id", sa.Integer(), nullable=False),
        sa.Column("partition", sa.Text(), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("added_at", moment),
        sa.Column("added_by", sa.BigInteger()),
    )
    op.create_table(
        "compaction_ready_answer",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("what", sa.Text(), primary_key=True),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("asked_at", moment, nullable=False),
        sa.Column("awaited_until", moment),
        sa.Column("told", sa.Boolean()),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("compaction_ready_answer_awaited", "compaction_ready_answer", ["awaited_until"])
    op.create_table(
        "compaction_ready_report",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("what", sa.Text(), primary_key=True),
        sa.Column("at", moment, nullable=False),
    )
