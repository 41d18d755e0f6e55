"""Two new tables: the optimizers that registered with the HTTP service, and the tokens that the service accepts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_optimizer",
        sa.Column("optimizer_id", sa.String(), nullable=False),
        sa.Column("group", sa.String(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("process", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("parallelism", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("touched_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("resource_id", sa.String(), nullable=False),
        sa.Column("why", sa.Text(), nullable=False),
        sa.Column("poll_id", sa.String(), nullable=False),
        sa.Column("polled", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("optimizer_id"),
    )
    op.create_index("compaction_optimizer_state", "compaction_optimizer", ["state", "touched_at"])
    op.create_table(
        "compaction_token",
        sa.Column("token_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("salt", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.Column("parent_id", sa.String()),
        sa.Column("optimizer_id", sa.String()),
        sa.PrimaryKeyConstraint("token_id"),
    )
    op.create_index("compaction_token_parent", "compaction_token", ["parent_id"])
