"""An index of the tasks that a newer plan replaced, so that they are counted apart from those that were canceled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None


def upgrade() -> None:
    replaced = sa.text("end_reason = 'REPLACED'")
    op.create_index("compaction_task_replaced", "compaction_task", ["end_reason"], sqlite_where=replaced, postgresql_where=replaced)
