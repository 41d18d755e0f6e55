"""A table keeps the problem that its last commit met, the number of failures, and the time of the next try."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_table", sa.Column("commit_problem", sa.Text(), nullable=True))
    op.add_column("compaction_table", sa.Column("commit_failures", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("compaction_table", sa.Column("commit_retry_at", sa.DateTime(timezone=True), nullable=True))
