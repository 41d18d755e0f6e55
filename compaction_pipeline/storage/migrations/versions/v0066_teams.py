"""Teams with their limits, loans and whitelist, and the team of each task. Tasks from before belong to `unassigned`."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0066"
down_revision = "0065"
branch_labels = None
depends_on = None

_HAS_TURN = sa.text("(status = 'PENDING' AND paused = false) IS TRUE")


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    team = op.create_table(
        "compaction_team",
        sa.Column("name", sa.String(64), primary_key=True),
        sa.Column("owners", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer()),
        sa.Column("memory_bytes", sa.BigInteger()),
        sa.Column("gb_hours", sa.Float()),
        sa.Column("held_since", moment),
    )
    op.bulk_insert(team, [{"name": "unassigned", "owners": "[]"}])
    op.create_table(
        "compaction_team_loan",
        sa.Column("loan_id", sa.String(32), primary_key=True),
        sa.Column("lender", sa.String(64), nullable=False),
        sa.Column("borrower", sa.String(64), nullable=False),
        sa.Column("until", moment, nullable=False),
        sa.Column("asked_by", sa.Text(), nullable=False),
        sa.Column("asked_at", moment, nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("gb_hours", sa.Float(), nullable=False),
        sa.Column("consent", sa.Text(), nullable=False),
        sa.Column("approved_by", sa.Text(), nullable=False),
        sa.Column("began_at", moment),
        sa.Column("ended_at", moment),
    )
    op.create_table(
        "compaction_team_whitelist",
        sa.Column("team", sa.String(64), primary_key=True),
        sa.Column("at", moment, primary_key=True),
        sa.Column("until", moment, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("allowed_by", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_team_mapping",
        sa.Column("target", sa.String(), primary_key=True),
        sa.Column("team", sa.String(64), nullable=False),
    )
    op.create_table(
        "compaction_team_change",
        sa.Column("change_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("at", moment, nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("team", sa.String(64), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("before", sa.Text()),
        sa.Column("after", sa.Text()),
    )
    op.create_index("compaction_team_change_team", "compaction_team_change", ["team", "change_id"])
    op.add_column("compaction_task", sa.Column("team", sa.String(64), nullable=False, server_default="unassigned"))
    order = ["rank", "many_files", "waiting_since", "task_id"]
    for name, columns in (("compaction_task_poll_team", order), ("compaction_task_poll_team_fifo", order[2:])):
        columns = ["queue", "team", *columns]
        op.create_index(name, "compaction_task", columns, sqlite_where=_HAS_TURN, postgresql_where=_HAS_TURN)
