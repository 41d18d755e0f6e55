"""Indexes for queues whose order is FIFO or QUOTA, and for the time that attempts took of late."""

from __future__ import annotations

from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_TURN = ["queue", "status", "paused"]


def upgrade() -> None:
    op.create_index("compaction_task_poll_fifo", "compaction_task", [*_TURN, "waiting_since", "task_id"])
    by_table = [*_TURN, "identifier", "rank", "many_files", "waiting_since", "task_id"]
    op.create_index("compaction_task_poll_table", "compaction_task", by_table)
    op.create_index("compaction_attempt_ended", "compaction_attempt", ["ended_at"])
