"""A task knows whether its table is paused, so that a poll finds the next task without a look at the tasks of paused tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_task", sa.Column("paused", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute("UPDATE compaction_task SET paused = true WHERE identifier IN (SELECT identifier FROM compaction_table WHERE paused = true)")
    op.drop_index("compaction_task_poll", table_name="compaction_task")
    op.create_index("compaction_task_poll", "compaction_task", ["status", "paused", "priority", "created_at", "task_id"])
