"""Which container started an optimizer, and a digest of the settings with which it was started."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_optimizer", sa.Column("container", sa.String(), nullable=False, server_default="external"))
    op.add_column("compaction_optimizer", sa.Column("settings", sa.String(16), nullable=False, server_default=""))
