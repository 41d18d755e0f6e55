"""Whether an error ended an optimizer. Those that ended before this count as told to end."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_optimizer", sa.Column("failed", sa.Boolean(), nullable=False, server_default=sa.false()))
