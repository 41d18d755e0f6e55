"""Facts that could not be applied are kept, with what was wrong with them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_center_fact", sa.Column("problem", sa.Text()))
