"""The ledger: what attempts cost, by day, and what the slots of optimizers did. Nothing is known of the days before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0065"
down_revision = "0063"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_cost",
        sa.Column("attempt_id", sa.String(), primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
        *(sa.Column(name, sa.String(), nullable=False) for name in ("identifier", "team", "queue")),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("end_reason", sa.String(32), nullable=False),
        sa.Column("slot_seconds", sa.Float(), nullable=False),
        sa.Column("cpu_seconds", sa.Float()),
        sa.Column("overhead_cpu_seconds", sa.Float()),
        *(sa.Column(name, sa.BigInteger()) for name in ("peak_memory_bytes", "bytes_read", "bytes_written")),
        sa.Column("gb_hours", sa.Float()),
        *(sa.Column(name, sa.Boolean(), nullable=False) for name in ("is_cut", "is_provisional")),
    )
    op.create_index("compaction_cost_day", "compaction_cost", ["day"])
    op.create_table(
        "compaction_cost_of_day",
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("team", sa.String(), primary_key=True),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("slot_seconds", "merged_slot_seconds", "cpu_seconds", "gb_hours")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("bytes_read", "bytes_written")),
    )
    op.create_table(
        "compaction_slot_time",
        sa.Column("optimizer_id", sa.String(), primary_key=True),
        sa.Column("day", sa.Date(), primary_key=True),
        sa.Column("queue", sa.String(), nullable=False),
        sa.Column("reserve_bytes", sa.BigInteger()),
        *(sa.Column(name, sa.Float(), nullable=False) for name in ("starting", "held", "idle", "ending")),
    )
    op.create_index("compaction_slot_time_day", "compaction_slot_time", ["day"])
    for name in ("cores", "held_seconds", "idle_seconds"):
        op.add_column("compaction_optimizer", sa.Column(name, sa.Float()))
    op.add_column("compaction_optimizer", sa.Column("first_polled_at", moment))
