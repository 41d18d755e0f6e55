"""A task has a column for the bytes that it reads. So the bytes that wait for a commit are counted without reading every task.

Tasks from before this version count 0. They are still committed when their table's interval ends.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_task", sa.Column("input_bytes", sa.BigInteger(), nullable=False, server_default="0"))
