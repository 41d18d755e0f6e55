"""Secrets of catalogs and groups are encrypted. Before, they were plain text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import context, op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_catalog", sa.Column("sealed", sa.Text()))
    op.add_column("compaction_group", sa.Column("sealed", sa.Text()))
    # The keys are those of the process that upgrades, so the caller gives what encrypts.
    context.config.attributes["seal"](op.get_bind())
