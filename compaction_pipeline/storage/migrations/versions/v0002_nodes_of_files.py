"""Files can be read by node, and a node shows whether it was measured since its files changed. `storage/schema.py` gives the reasons.

The index of files is only a copy of what the tables say. So this step deletes its rows and the nodes' figures, and the next refresh
reads them from the tables again. The times of the nodes' last compactions are deleted too, so their intervals begin again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DELETE FROM compaction_file")
    op.execute("DELETE FROM compaction_manifest")
    op.execute("DELETE FROM compaction_partition")
    op.execute("DELETE FROM compaction_node")
    op.execute(sa.table("compaction_table", sa.column("complete", sa.Boolean())).update().values(complete=False))
    op.add_column("compaction_table", sa.Column("metadata_location", sa.Text(), nullable=True))
    op.add_column("compaction_partition", sa.Column("spec_id", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("compaction_partition", sa.Column("touched", sa.Boolean(), nullable=False, server_default=sa.true()))
    op.add_column("compaction_file", sa.Column("path_hash", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("compaction_file", sa.Column("referenced_hash", sa.BigInteger(), nullable=True))
    op.create_index("compaction_file_partition", "compaction_file", ["partition_id", "path_hash"], unique=False)
    op.create_index("compaction_file_path", "compaction_file", ["path_hash", "partition_id"], unique=False)
    referencing = sa.text("referenced_hash IS NOT NULL")
    op.create_index(
        "compaction_file_reference",
        "compaction_file",
        ["referenced_hash", "partition_id"],
        unique=False,
        sqlite_where=referencing,
        postgresql_where=referencing,
    )
    equality = sa.text("content = 'EQUALITY_DELETES'")
    op.create_index(
        "compaction_file_equality", "compaction_file", ["partition_id"], unique=False, sqlite_where=equality, postgresql_where=equality
    )
