"""Ends of attempts that were not believed, and tokens that are blocked because their optimizers reported what cannot be true."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_attempt", sa.Column("claimed", sa.String()))
    for name in ("blocked_at", "allowed_at"):
        op.add_column("compaction_token", sa.Column(name, sa.DateTime(timezone=True)))
