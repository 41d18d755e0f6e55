"""Every change of a table's nodes gives them a new version. Readers remember the nodes of a version, and read them once."""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("compaction_table", sa.Column("nodes_version", sa.String(), nullable=False, server_default=""))
    table = sa.table("compaction_table", sa.column("identifier", sa.String()), sa.column("nodes_version", sa.String()))
    connection = op.get_bind()
    for identifier in connection.execute(sa.select(table.c.identifier)).scalars().all():
        connection.execute(sa.update(table).where(table.c.identifier == identifier).values(nodes_version=uuid4().hex))
