"""A new table: what came out when each table was last compared with its newest record."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_comparison",
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("metadata_location", sa.Text(), nullable=False),
        sa.Column("contradiction", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("identifier"),
    )
