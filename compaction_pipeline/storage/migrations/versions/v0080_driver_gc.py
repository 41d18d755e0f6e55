"""What the JVM of an optimizer's Spark driver tells of its garbage collections."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0081"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_optimizer", sa.Column("driver_gc", sa.Text()))
