"""Which change of an answer the receiver of callbacks was told last, in place of whether it was told that the answer is ready.

Under which id something was told before is not known. So what is ready is told once more, under the same id, and what is not is taken back.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("compaction_ready_answer") as answers:
        answers.alter_column("told", existing_type=sa.Boolean(), type_=sa.Text(), postgresql_using="told::text")
    told = "CASE WHEN told IN ('1', 'true') THEN '/ready/again' WHEN told IS NOT NULL THEN '/withdrawn' END"
    op.execute(f"UPDATE compaction_ready_answer SET told = {told}")
