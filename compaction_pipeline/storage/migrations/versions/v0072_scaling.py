"""What each group is to have by its policy of scaling, what was done for that, and what was seen of the group in each minute."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from compaction_pipeline.storage.columns import Moment

revision = "0072"
down_revision = "0070"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_scale",
        sa.Column("group", sa.String(), primary_key=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_scaling_record",
        sa.Column("record_id", sa.String(), primary_key=True),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("at", Moment(), nullable=False),
        sa.Column("outcome", sa.String()),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("compaction_scaling_record_at", "compaction_scaling_record", ["group", "at"])
    is_open = sa.text("outcome IS NULL")
    op.create_index(
        "compaction_scaling_record_open",
        "compaction_scaling_record",
        ["group"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_table(
        "compaction_observation",
        sa.Column("group", sa.String(), primary_key=True),
        sa.Column("at", Moment(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
