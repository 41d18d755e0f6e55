"""What the plan of an attempt's task expected it to write, so that later plans can be corrected by it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0081"
down_revision = "0079"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_cost", sa.Column("expected_bytes", sa.BigInteger()))
