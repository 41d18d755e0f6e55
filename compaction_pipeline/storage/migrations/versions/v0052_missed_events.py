"""What the patrol of the dependency center found because nobody had reported it, by the hour, detector and thing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0050"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_center_missed",
        sa.Column("hour", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("detector", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("events", sa.BigInteger(), nullable=False),
    )
