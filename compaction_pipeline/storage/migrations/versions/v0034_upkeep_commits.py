"""Records of works of upkeep that commit, and when each work looked at each table the last time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_upkeep_commit",
        sa.Column("record_id", sa.String(), primary_key=True),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("ended_at", moment),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("compaction_upkeep_commit_identifier", "compaction_upkeep_commit", ["identifier", "created_at"])
    op.create_index("compaction_upkeep_commit_status", "compaction_upkeep_commit", ["status", "ended_at"])
    op.create_table(
        "compaction_upkeep_turn",
        sa.Column("identifier", sa.String(), primary_key=True),
        sa.Column("work", sa.String(32), primary_key=True),
        sa.Column("at", moment, nullable=False),
        sa.Column("metadata_location", sa.Text()),
        sa.Column("next_look", moment),
    )
