"""Weak edges of the dependency center: groups of requirements, what an instance was started without, and which runs have failed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.add_column("compaction_center_instance", sa.Column("note", sa.Text()))
    # Those that there are belong to strong edges, and have none.
    op.add_column("compaction_center_requirement", sa.Column("opens_at", moment))
    op.create_table(
        "compaction_center_group",
        sa.Column(
            "instance_id",
            serial,
            sa.ForeignKey("compaction_center_instance.id", ondelete="CASCADE"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("edge", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("strength", sa.String(32), nullable=False),
        sa.Column("until_at", moment),
        sa.Column("waits_for_failed", sa.Boolean(), nullable=False),
        sa.Column("met", sa.Boolean(), nullable=False),
        sa.Column("look_at", moment),
    )
    op.create_index("compaction_center_group_look_at", "compaction_center_group", ["look_at"])
    # A run that failed is told apart from one of which nothing is known.
    part = "CASE part WHEN '' THEN '' ELSE ' && part=' || part END"
    origin = "CASE origin WHEN '' THEN '' ELSE ' && backfill=' || origin END"
    failed = f"SELECT 'job=' || job || {origin} || ' && biz=' || biz || {part} FROM compaction_center_instance WHERE state = 'FAILED'"
    op.execute(f"UPDATE compaction_center_subject SET reached = -1 WHERE reached = 0 AND key IN ({failed})")
