"""For which receivers of jobs a token may claim. Tokens that there are keep what they may: an admin made them when any writer might."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_token", sa.Column("receivers", sa.Text()))
