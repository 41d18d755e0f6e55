"""Events that people are told of, and a notice for each event and address."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0075"
down_revision = "0068"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_notice_event",
        sa.Column("event_id", sa.String(), primary_key=True),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("team", sa.String()),
        sa.Column("at", moment, nullable=False),
        sa.Column("lines", sa.Text(), nullable=False),
        sa.Column("is_spread", sa.Boolean(), nullable=False),
    )
    op.create_index("compaction_notice_event_at", "compaction_notice_event", ["at"])
    op.create_table(
        "compaction_notice",
        sa.Column("event_id", sa.String(), sa.ForeignKey("compaction_notice_event.event_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("address", sa.String(), primary_key=True),
        sa.Column("recipient", sa.String(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("first_at", moment, nullable=False),
        sa.Column("due_at", moment),
        sa.Column("sent_at", moment),
        sa.Column("why", sa.String(), nullable=False),
    )
    op.create_index("compaction_notice_due", "compaction_notice", ["due_at"])
