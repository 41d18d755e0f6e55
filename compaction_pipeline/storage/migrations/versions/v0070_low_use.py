"""How long optimizers were of low use, what a borrower says of them, and an index of the ledger by table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0075"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_optimizer_use",
        sa.Column("optimizer_id", sa.String(), primary_key=True),
        sa.Column("hour", moment, primary_key=True),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("low_seconds", sa.Float(), nullable=False),
        sa.Column("looked_at", moment, nullable=False),
    )
    op.create_index("compaction_optimizer_use_hour", "compaction_optimizer_use", ["hour"])
    op.create_index("compaction_cost_table", "compaction_cost", ["identifier", "day"])
    op.add_column("compaction_team_loan", sa.Column("excuses", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("compaction_team_whitelist", sa.Column("refused_loan", sa.String(32), nullable=False, server_default=""))
