"""A task says how many bytes it reads: what is merged and waits for its commit is counted without reading every task.

Tasks of before count 0; they are committed when their table's interval ends, as ever.
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
