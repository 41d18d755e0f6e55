"""A record has a column for the files that its commit merged away, and a new table holds how many files all tables had over time.

The column is computed from the figures of the records that are kept. The history begins with this version.
"""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_BATCH = 1_000


def upgrade() -> None:
    op.add_column("compaction_record", sa.Column("merged_away", sa.Integer(), nullable=False, server_default="0"))
    connection = op.get_bind()
    ids = list(connection.execute(sa.text("SELECT record_id FROM compaction_record WHERE status = 'COMMITTED'")).scalars())
    for start in range(0, len(ids), _BATCH):
        query = sa.text("SELECT record_id, value FROM compaction_record WHERE record_id IN :ids").bindparams(
            sa.bindparam("ids", ids[start : start + _BATCH], expanding=True)
        )
        rows = [{"id": row.record_id, "merged_away": _merged_away(row.value)} for row in connection.execute(query)]
        connection.execute(sa.text("UPDATE compaction_record SET merged_away = :merged_away WHERE record_id = :id"), rows)
    op.create_index("compaction_record_merged_away", "compaction_record", ["identifier", "merged_away"])
    op.create_table(
        "compaction_history",
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("files", sa.BigInteger(), nullable=False),
        sa.Column("merged_away", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("at"),
    )


def _merged_away(value: str) -> int:
    figures = json.loads(value).get("figures", {})
    before = figures.get("files_before", 0) + figures.get("delete_files_before", 0)
    return int(before - figures.get("files_after", 0) - figures.get("delete_files_after", 0))
