"""Finds the other names of a table by its uuid, in all catalogs."""

from __future__ import annotations

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("compaction_table_uuid", "compaction_table", ["table_uuid"])
