"""Records of upkeep, and what was seen of each store that upkeep looked at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_upkeep_record",
        sa.Column("record_id", sa.String(), primary_key=True),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("ended_at", moment),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("compaction_upkeep_record_identifier", "compaction_upkeep_record", ["identifier", "created_at"])
    op.create_index("compaction_upkeep_record_status", "compaction_upkeep_record", ["status", "ended_at"])
    op.create_table(
        "compaction_sightings",
        sa.Column("identifier", sa.String(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
