"""A new table: the resource groups. It begins with the default group, and with those that open tasks, tables and catalogs name.

A new column of tables: since when a table waits for room in its queue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_KEY = "self-optimizing.group"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OPEN = ("PENDING", "EXECUTING", "PREPARED", "FAILED")


def upgrade() -> None:
    op.create_table(
        "compaction_group",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("container", sa.String(), nullable=False),
        sa.Column("properties", sa.Text(), nullable=False),
        sa.Column("capacity", sa.Integer(), nullable=False),
        sa.Column("task_order", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.add_column("compaction_table", sa.Column("queue_full_since", sa.DateTime(timezone=True)))
    # A name that breaks the rule gets no group. Its tables say so, and their waiting tasks follow them to another group.
    names = {"default", *(name for name in _named(op.get_bind()) if _NAME.fullmatch(name))}
    columns = "name, container, properties, capacity, task_order"
    statement = sa.text(f"INSERT INTO compaction_group ({columns}) VALUES (:name, 'external', '{{}}', 10000, 'priority')")
    op.get_bind().execute(statement, [{"name": name} for name in sorted(names)])


def _named(connection: sa.Connection) -> Iterator[str]:
    task = sa.table("compaction_task", sa.column("queue", sa.String()), sa.column("status", sa.String()))
    yield from connection.execute(sa.select(task.c.queue).where(task.c.status.in_(_OPEN)).distinct()).scalars()
    for (layout,) in connection.execute(sa.text("SELECT layout FROM compaction_table WHERE layout IS NOT NULL")):
        yield str(json.loads(layout).get("properties", {}).get(_KEY, "")).strip()
    for (properties,) in connection.execute(sa.text("SELECT properties FROM compaction_catalog")):
        yield str(json.loads(properties).get(f"table.{_KEY}", "")).strip()
