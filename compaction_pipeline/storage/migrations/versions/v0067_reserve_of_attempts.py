"""The memory of the slot of an attempt that no optimizer makes. Nobody knows it of attempts from before."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0067"
down_revision = "0066"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_attempt", sa.Column("reserve_bytes", sa.BigInteger()))
