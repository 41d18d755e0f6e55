"""Why the container of a group was not asked for more optimizers. Nothing holds groups that there are, until a server looks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0063"
down_revision = "0055"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_group", sa.Column("held", sa.Text(), nullable=False, server_default=""))
