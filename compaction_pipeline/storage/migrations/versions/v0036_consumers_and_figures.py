"""Consumers that read tables from snapshot to snapshot, and figures that stand beside the health score."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_consumer",
        sa.Column("identifier", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), primary_key=True),
        sa.Column("until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.add_column("compaction_table", sa.Column("metadata_figures", sa.Text()))
    op.add_column("compaction_file", sa.Column("sort_bounds", sa.Text()))
    op.add_column("compaction_node", sa.Column("overlap_depth", sa.Integer()))
