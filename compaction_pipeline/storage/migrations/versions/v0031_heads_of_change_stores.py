"""The head of the change store of a keyed table, with which reports of commits are compared."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("change_snapshot_id", "change_sequence_number"):
        op.add_column("compaction_table", sa.Column(name, sa.BigInteger()))
