"""A sum over a node's files shows whether they changed since the node was measured. `storage/schema.py` gives the reasons.

Files that were indexed before this version have no hash. They count 0 in the sum, and a node that loses one is measured again.
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
