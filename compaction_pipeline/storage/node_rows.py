"""Rows of nodes. Three services write them, and each writes its own columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import uuid4

from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam, update

from compaction_pipeline.core.fragmentation.verdict import NodeState
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.table_rows import identifier_of

_LAST_DONE: TypeAdapter[dict[CompactionType, datetime]] = TypeAdapter(dict[CompactionType, datetime])


def node_state(row: StoredRow) -> NodeState:
    """The node that a row describes. The row also has the node's `key`."""
    return NodeState(
        identifier_of(row.identifier),
        row.node,
        row.key,
        row.metrics,
        row.verdict,
        row.first_seen,
        last_done_of(row.last_done),
        row.changed_snapshot_id,
        row.failing,
        row.small_since,
        row.overlap_depth,
    )


def last_done_of(text: str) -> dict[CompactionType, datetime]:
    """The time at which each kind of work was last done, from the text in a row."""
    return _LAST_DONE.validate_json(text)


def last_done_text(last_done: Mapping[CompactionType, datetime]) -> str:
    """The text that a row stores for these times."""
    return _LAST_DONE.dump_json(dict(last_done)).decode()


def new_version() -> str:
    """A version that nothing had before. A counter would begin again when a table is forgotten and found again."""
    return uuid4().hex


def note_change(connection: Connection, table: TableIdentifier) -> None:
    """Give the nodes of a table a new version. Each transaction that changes rows of nodes does this before it changes them.

    It locks the row of the table. Whoever removes a table locks the rows in the same order: the table's row first, then its nodes.
    """
    rows = schema.table_state.c.identifier == str(table)
    connection.execute(update(schema.table_state).where(rows).values(nodes_version=new_version()))


def update_nodes(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Set columns of nodes. Each of `rows` names its node by `identity`, and all set the same columns. Unknown nodes are skipped."""
    if rows:
        columns = [name for name in rows[0] if name != "identity"]
        statement = update(schema.node).where(schema.node.c.identity == bindparam("node_identity"))
        values = {name: bindparam(f"new_{name}", type_=schema.node.c[name].type) for name in columns}
        connection.execute(
            statement.values(values), [{"node_identity": row["identity"], **{f"new_{name}": row[name] for name in columns}} for row in rows]
        )
