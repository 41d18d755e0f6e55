"""What the receiver of callbacks was told last, apart from how, and of which awaited tables something was reported just now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

_AGAIN, _READY, _WITHDRAWN = "/ready/again", "/ready", "/withdrawn"


def upgrade() -> None:
    op.add_column("compaction_ready_answer", sa.Column("told_as", sa.String(32)))
    op.add_column("compaction_ready_answer", sa.Column("reported", sa.Boolean(), nullable=False, server_default=sa.false()))
    for ending, told_as in ((_AGAIN, "ready again"), (_READY, "ready"), (_WITHDRAWN, "withdrawn")):
        change = f"substr(told, 1, length(told) - {len(ending)})"
        op.execute(
            f"UPDATE compaction_ready_answer SET told = {change}, told_as = '{told_as}' WHERE told_as IS NULL AND told LIKE '%{ending}'"
        )
    op.create_index("compaction_ready_answer_identifier", "compaction_ready_answer", ["identifier"])
