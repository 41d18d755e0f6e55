"""Looks for orphan files, their deletions, and the places where tables were ever seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "compaction_orphan_look",
        sa.Column("identifier", sa.String(), primary_key=True),
        sa.Column("listed_at", moment, primary_key=True),
        sa.Column("is_done", sa.Boolean(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_table(
        "compaction_orphan_deletion",
        sa.Column("record_id", sa.String(), primary_key=True),
        sa.Column("identifier", sa.String(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
    )
    op.create_index("compaction_orphan_deletion_identifier", "compaction_orphan_deletion", ["identifier", "created_at"])
    place = op.create_table(
        "compaction_table_place",
        sa.Column("identifier", sa.String(), primary_key=True),
        sa.Column("table_uuid", sa.String(), primary_key=True),
        sa.Column("location", sa.Text(), primary_key=True),
        sa.Column("metadata_location", sa.Text()),
        sa.Column("read_at", moment),
        sa.Column("roots", sa.Text(), nullable=False),
    )
    state = sa.table("compaction_table", sa.column("identifier"), sa.column("table_uuid"), sa.column("layout"))
    known = sa.select(state).where(state.c.table_uuid.is_not(None), state.c.layout.is_not(None))
    rows = [
        {"identifier": row.identifier, "table_uuid": row.table_uuid, "location": location, "roots": "[]"}
        for row in op.get_bind().execute(known)
        for location in dict.fromkeys(_locations(json.loads(row.layout)))
    ]
    op.bulk_insert(place, rows)


def _locations(layout: Any) -> Iterator[str]:
    """The location of a table, and that of its change store, which the layout of a keyed table holds."""
    if isinstance(layout, dict):
        for key, value in layout.items():
            if key == "location" and isinstance(value, str):
                yield value
            elif key != "properties":
                yield from _locations(value)
