"""Finds the commits that ended lately (issue 28, section 7: `/metrics`)."""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index("compaction_record_ended_at", "compaction_record", ["ended_at"])
