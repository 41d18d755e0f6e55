"""Why the dependency center does not know how far a table is, or one thing of it, so that every process can say it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0054"
down_revision = "0052"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_center_problem",
        sa.Column("key", sa.String(), primary_key=True),
        sa.Column("problem", sa.Text(), nullable=False),
    )
