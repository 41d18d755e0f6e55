"""Who holds which key of a catalog. What was registered before is a person's, until a component or a file names it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_catalog", sa.Column("held", sa.Text(), nullable=False, server_default="{}"))
