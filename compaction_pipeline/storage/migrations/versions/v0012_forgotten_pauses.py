"""The pause of a table that is forgotten is kept for the time when the table is found again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_forgotten_pause", sa.Column("identifier", sa.String(), nullable=False), sa.PrimaryKeyConstraint("identifier")
    )
