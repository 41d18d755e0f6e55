"""A node says by a sum over its files whether they are others than those measured. The reasons stand in `storage/schema.py`.

Files indexed before have no hash: they count 0, and a node that loses one is measured anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_partition", sa.Column("files_sum", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("compaction_partition", sa.Column("measured_sum", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("compaction_file", sa.Column("entry_hash", sa.BigInteger(), nullable=True))
