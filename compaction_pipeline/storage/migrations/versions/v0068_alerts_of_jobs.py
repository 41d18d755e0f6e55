"""What the owners of jobs should look at, which the leader of the dependency center finds now and then."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0068"
down_revision = "0067"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "compaction_center_alert",
        sa.Column("number", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
    )
