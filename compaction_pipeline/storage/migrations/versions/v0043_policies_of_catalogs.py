"""What the catalog says about each table in its policies."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0041"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_table", sa.Column("policies", sa.Text()))
