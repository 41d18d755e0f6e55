"""A task whose attempt failed waits as FAILED until `retry_at`. Tasks count failures and losses apart, and keep the times of their life.

Before, such a task was Pending again at once, so no task waits as FAILED when the upgrade is over. A lost attempt used up a retry before
this version, and so did one that was given back: open tasks get these retries back.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TIMES = ("waiting_since", "failed_at", "retry_at", "prepared_at", "committed_at")
_ATTEMPTS = "FROM compaction_attempt WHERE compaction_attempt.task_id = compaction_task.task_id AND compaction_attempt.end_reason"


def upgrade() -> None:
    for name in ("failures", "losses"):
        op.add_column("compaction_task", sa.Column(name, sa.Integer(), nullable=False, server_default="0"))
    for name in _TIMES:
        op.add_column("compaction_task", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.execute(
        f"""
        UPDATE compaction_task SET
            waiting_since = created_at,
            failures = (SELECT count(*) {_ATTEMPTS} NOT IN ('MERGED', 'LOST', 'INTERRUPTED')),
            failed_at = (SELECT max(ended_at) {_ATTEMPTS} NOT IN ('MERGED', 'LOST', 'INTERRUPTED')),
            prepared_at = (SELECT max(ended_at) {_ATTEMPTS} = 'MERGED'),
            committed_at = CASE WHEN status = 'COMMITTED' THEN ended_at END
        """
    )
    op.create_index(
        "compaction_task_retry",
        "compaction_task",
        ["retry_at", "task_id"],
        sqlite_where=sa.text("retry_at IS NOT NULL"),
        postgresql_where=sa.text("retry_at IS NOT NULL"),
    )
