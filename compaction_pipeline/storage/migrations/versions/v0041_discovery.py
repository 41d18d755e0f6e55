"""What listings of catalogs did not see, tables that have vanished, and the uuids of the tables that records are about."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0039"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.add_column("compaction_table", sa.Column("unseen_rounds", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("compaction_table", sa.Column("unseen_since", moment))
    op.create_table(
        "compaction_unseen",
        sa.Column("catalog", sa.String(), primary_key=True),
        sa.Column("namespace", sa.Text(), primary_key=True),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("tables", sa.Integer(), nullable=False),
    )
    op.create_table(
        "compaction_vanished",
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("paused", sa.Boolean(), nullable=False),
        sa.Column("at", moment, nullable=False),
    )
    op.create_index("compaction_vanished_identifier", "compaction_vanished", ["identifier", "at"])
    op.add_column("compaction_record", sa.Column("table_uuid", sa.String()))
    # The records of a table that is known are about this table, as far as anybody can tell.
    op.execute(
        "UPDATE compaction_record SET table_uuid = "
        "(SELECT table_uuid FROM compaction_table WHERE compaction_table.identifier = compaction_record.identifier)"
    )
