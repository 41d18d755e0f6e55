"""A node remembers since when it has had enough small files for a MINOR. A switch remembers that a person has paused all tables.

For nodes that an older version stored, the time is unknown until their files change.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_node", sa.Column("small_since", sa.DateTime(timezone=True), nullable=True))
    op.create_table("compaction_switch", sa.Column("name", sa.String(length=32), nullable=False), sa.PrimaryKeyConstraint("name"))
