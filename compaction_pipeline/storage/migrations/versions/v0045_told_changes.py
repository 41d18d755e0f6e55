"""Which change of an answer the receiver of callbacks was told last, in place of whether it was told that the answer is ready.

What was told before is forgotten, so it is told once more, under the same id.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("UPDATE compaction_ready_answer SET told = NULL")
    with op.batch_alter_table("compaction_ready_answer") as answers:
        answers.alter_column("told", existing_type=sa.Boolean(), type_=sa.Text(), postgresql_using="NULL::text")
