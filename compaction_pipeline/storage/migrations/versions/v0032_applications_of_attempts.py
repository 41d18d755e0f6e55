"""The Spark application of optimizers and of attempts. Those of before know none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("compaction_optimizer", "compaction_attempt"):
        op.add_column(table, sa.Column("application", sa.String(), nullable=False, server_default=""))
