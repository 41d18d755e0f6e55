"""Attempts and tasks get a column `end_reason` with one word of a fixed set. Before, the program had to find
this out from the sentences in `reason`."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_TASK = sa.table(
    "compaction_task",
    *(sa.column(name, sa.String()) for name in ("task_id", "status", "reason", "result", "end_reason")),
)
_ATTEMPT = sa.table("compaction_attempt", sa.column("end_reason", sa.String()))


def upgrade() -> None:
    op.add_column("compaction_task", sa.Column("end_reason", sa.String(32), nullable=True))
    # Before, the outcome of an attempt was PREPARED, FAILED, LOST or DIGEST_MISMATCH.
    op.execute("ALTER TABLE compaction_attempt RENAME COLUMN outcome TO end_reason")
    op.execute(_ATTEMPT.update().where(_ATTEMPT.c.end_reason == "PREPARED").values(end_reason="MERGED"))
    columns = _TASK.c
    connection = op.get_bind()
    refused = [
        task_id
        for task_id, result in connection.execute(
            sa.select(columns.task_id, columns.result).where(columns.status == "FAILED", columns.result.is_not(None))
        )
        if json.loads(result).get("refused")
    ]
    for task_id in refused:
        op.execute(_TASK.update().where(columns.task_id == task_id).values(end_reason="REFUSED"))
    for condition, end_reason in (
        ((columns.status == "FAILED") & columns.reason.like("conflict: %"), "CONFLICT"),
        ((columns.status == "FAILED") & columns.reason.like("attempt % was lost: %"), "LOST"),
        (columns.status == "FAILED", "FAILED"),
        ((columns.status == "CANCELED") & (columns.reason == "replaced by a newer plan"), "REPLACED"),
        (columns.status == "CANCELED", "GIVEN_UP"),
    ):
        op.execute(_TASK.update().where(condition & columns.end_reason.is_(None)).values(end_reason=end_reason))
