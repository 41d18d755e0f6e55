"""What each task is predicted to cost, so that a plan knows how much of its team's GB-hours waiting tasks take."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0082"
down_revision = "0080"
branch_labels = None
depends_on = None

_PROMISED = sa.text("(predicted_gb_hours IS NOT NULL AND (status = 'EXECUTING' OR (status = 'PENDING' AND paused = false))) IS TRUE")


def upgrade() -> None:
    op.add_column("compaction_task", sa.Column("predicted_gb_hours", sa.Float()))
    columns = ["team", "predicted_gb_hours"]
    op.create_index("compaction_task_promised", "compaction_task", columns, sqlite_where=_PROMISED, postgresql_where=_PROMISED)
