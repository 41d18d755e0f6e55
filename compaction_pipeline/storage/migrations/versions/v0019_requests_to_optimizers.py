"""What a person asks of a running optimizer: another level of its log, and the stacks of its threads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("log_level", "stack_request"):
        op.add_column("compaction_optimizer", sa.Column(name, sa.String(), nullable=False, server_default=""))
