"""What attempts have used until now, as their workers tell it while they run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0083"
down_revision = "0082"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_attempt", sa.Column("used_so_far", sa.Text()))
