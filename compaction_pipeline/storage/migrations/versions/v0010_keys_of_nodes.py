"""The keys of nodes are stored. Before, each program made them anew from the table and the partition.

Nodes of an older database keep the keys that Dagster's history knows. New nodes get shorter ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_node_key",
        sa.Column("identity", sa.String(length=512), nullable=False),
        sa.Column("key", sa.String(length=512), nullable=False),
        sa.PrimaryKeyConstraint("identity"),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO compaction_node_key (identity, key) SELECT key, key FROM compaction_node")
    op.create_index("compaction_node_key_key", "compaction_node_key", ["key"], unique=True)
    op.execute("ALTER TABLE compaction_node RENAME COLUMN key TO identity")
