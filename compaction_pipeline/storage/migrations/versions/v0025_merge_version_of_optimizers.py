"""By which version of the rules an optimizer merges. All optimizers that registered before this merge by version 1."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_optimizer", sa.Column("merge_version", sa.Integer(), nullable=False, server_default="1"))
