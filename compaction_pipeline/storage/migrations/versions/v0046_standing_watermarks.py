"""Since when the watermark of each writer stands."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_ready_standing",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("writer", sa.String(), primary_key=True),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("compaction_ready_standing_asked", "compaction_ready_standing", ["asked_at"])
