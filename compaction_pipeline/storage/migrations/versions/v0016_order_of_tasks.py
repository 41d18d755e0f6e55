"""The place of a task in line is stored: its rank, in which waiting makes up for priority, and how many small files it merges.

Before, a higher priority always went first, so tasks with a low one could wait for ever. Two indexes hold the whole order: one for all
queues, and one for each queue.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_BATCH = 1_000
_ORDER = ["status", "paused", "rank", "many_files", "waiting_since", "task_id"]
_TASK = sa.table(
    "compaction_task",
    sa.column("task_id", sa.String()),
    sa.column("status", sa.String()),
    sa.column("planned", sa.Text()),
    sa.column("priority", sa.Integer()),
    sa.column("waiting_since", sa.DateTime(timezone=True)),
)


def upgrade() -> None:
    op.add_column("compaction_task", sa.Column("rank", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("compaction_task", sa.Column("many_files", sa.Integer(), nullable=False, server_default="0"))
    connection = op.get_bind()
    columns = _TASK.c
    # Tasks that have ended never wait again.
    waiting = columns.status.in_(("PENDING", "EXECUTING", "FAILED"))
    ids = list(connection.execute(sa.select(columns.task_id).where(waiting)).scalars())
    for start in range(0, len(ids), _BATCH):
        found = connection.execute(sa.select(*columns).where(columns.task_id.in_(ids[start : start + _BATCH])))
        rows = [{"id": row.task_id, "rank": _rank(row.priority, row.waiting_since), "many": -_small_files(row.planned)} for row in found]
        connection.execute(sa.text("UPDATE compaction_task SET rank = :rank, many_files = :many WHERE task_id = :id"), rows)
    op.drop_index("compaction_task_poll", table_name="compaction_task")
    op.create_index("compaction_task_poll", "compaction_task", _ORDER)
    op.create_index("compaction_task_poll_queue", "compaction_task", ["queue", *_ORDER])


def _rank(priority: int, waiting_since: datetime) -> int:
    aware = waiting_since.replace(tzinfo=timezone.utc) if waiting_since.tzinfo is None else waiting_since
    return int(aware.timestamp()) // 3_600 - priority


def _small_files(planned: str) -> int:
    work = json.loads(planned)["work"]
    small = sum(file["file_size_bytes"] <= work["fragment_size_bytes"] for file in work["inputs"])
    return int(small + len(work["deletes"]))
