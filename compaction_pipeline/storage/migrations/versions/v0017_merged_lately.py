"""An index of merged tasks by the time when their merge ended.

Every tick asks how much was merged in the last minutes. Without the index it would read all tasks that are kept.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    merged = sa.text("prepared_at IS NOT NULL")
    op.create_index("compaction_task_merged", "compaction_task", ["prepared_at"], sqlite_where=merged, postgresql_where=merged)
