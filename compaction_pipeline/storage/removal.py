"""Removes what the state database knows of a table. Rows that refer to others are deleted first."""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, select, union

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import upsert
from compaction_pipeline.storage.ledger import charge


def remove_files(connection: Connection, identifier: str) -> None:
    """Forget the indexed files of a table."""
    manifests = select(schema.manifest.c.manifest_id).where(schema.manifest.c.identifier == identifier)
    connection.execute(delete(schema.live_file).where(schema.live_file.c.manifest_id.in_(manifests)))
    connection.execute(delete(schema.manifest).where(schema.manifest.c.identifier == identifier))
    connection.execute(delete(schema.partition).where(schema.partition.c.identifier == identifier))


def keep_uuid(connection: Connection, identifier: str) -> None:
    """Remember whose name this was, so that the table is found again by its uuid. Call this before the table is removed."""
    columns = schema.table_state.c
    row = connection.execute(select(columns.table_uuid, columns.paused).where(columns.identifier == identifier)).first()
    if row is not None and row.table_uuid is not None:
        values = {"identifier": identifier, "paused": row.paused, "at": func.now()}
        kept = upsert(connection, schema.vanished).values(table_uuid=row.table_uuid, **values)
        connection.execute(kept.on_conflict_do_update(index_elements=["table_uuid"], set_=values))


def remove_table(connection: Connection, identifier: str) -> None:
    """Forget a table with its files, nodes and tasks, but keep its records."""
    # The table goes first. Who changes its nodes (`note_change`) or pauses it also locks it before its nodes and tasks.
    connection.execute(delete(schema.table_state).where(schema.table_state.c.identifier == identifier))
    remove_files(connection, identifier)
    connection.execute(delete(schema.node).where(schema.node.c.identifier == identifier))
    connection.execute(delete(schema.commit_report).where(schema.commit_report.c.identifier == identifier))
    connection.execute(delete(schema.comparison).where(schema.comparison.c.identifier == identifier))
    # What its running attempts have cost stays. Their workers were heard of until their leases were last renewed.
    runs = (schema.task.c.identifier == identifier, schema.task.c.status == TaskStatus.EXECUTING)
    for row in connection.execute(select(schema.task).where(*runs).with_for_update()).all():
        charge(connection, row, EndReason.LOST, row.lease_expires_at or row.started_at, None)
    # Inputs and attempts go with their tasks (ON DELETE CASCADE).
    connection.execute(delete(schema.task).where(schema.task.c.identifier == identifier))


def remove_records(connection: Connection, identifier: str) -> None:
    """Forget the history of a table."""
    connection.execute(delete(schema.record).where(schema.record.c.identifier == identifier))


def identifiers_of(connection: Connection, catalog: str) -> list[str]:
    """The identifiers of all tables of a catalog that any part of the state mentions, sorted."""
    holders = (schema.table_state, schema.node, schema.manifest, schema.task, schema.record, schema.commit_report)
    known = connection.execute(union(*(select(holder.c.identifier) for holder in holders))).scalars()
    return sorted(identifier for identifier in known if TableIdentifier.parse(identifier).catalog == catalog)
