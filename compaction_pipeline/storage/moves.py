"""The MoveStore: gives what is known of a table from one name to another, by the table's uuid.

All rows move in one transaction. The caller holds the leases of both names, so nobody stores anything under them meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, delete, select, update

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import MAX_KEY_BYTES, long_key, table_key
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, upsert, writing
from compaction_pipeline.storage.node_rows import new_version
from compaction_pipeline.storage.removal import keep_uuid, remove_table
from compaction_pipeline.storage.sql_store import SqlStore
from compaction_pipeline.storage.switches import pause_table

_known, _record, _vanished = schema.table_state.c, schema.record.c, schema.vanished.c

_BY_NAME = (schema.manifest, schema.partition, schema.commit_report, schema.comparison, schema.upkeep_turn)
"""These tables hold the name of a table, and no value that repeats it."""

_ONE_EACH = (schema.commit_report, schema.comparison, schema.upkeep_turn, schema.sightings, schema.orphan_look)
"""These hold at most a row of each kind for a name. What another table left under the name goes: all of it is found out again."""


class SqlMoveStore(SqlStore):
    """Moves of tables in the state database."""

    def move(self, table_uuid: str, old: TableIdentifier, new: TableIdentifier, back: str | None = None) -> bool:
        with writing(self._engine) as connection:
            lock(connection, "names of tables")
            if _uuid_of(connection, old) != table_uuid or (back is not None and _uuid_of(connection, new) != back):
                return False
            if back is not None:
                between = _nowhere(back)
                _move(connection, back, new, between)
                _move(connection, table_uuid, old, new)
                _move(connection, back, between, old)
                return True
            # A person may have paused the new name before anybody knew which table has it.
            is_paused = connection.execute(select(_known.paused).where(_known.identifier == str(new), _known.table_uuid.is_(None))).scalar()
            _displace(connection, new)
            _move(connection, table_uuid, old, new)
            connection.execute(delete(schema.vanished).where(_vanished.table_uuid == table_uuid))
            if is_paused:
                pause_table(connection, str(new))
            return True

    def find_again(self, table_uuid: str, table: TableIdentifier) -> bool:
        with writing(self._engine) as connection:
            lock(connection, "names of tables")
            found = connection.execute(select(schema.vanished).where(_vanished.table_uuid == table_uuid)).first()
            if found is None:
                return False
            before = TableIdentifier.parse(found.identifier)
            _take_consumers(connection, table_uuid, before, table)
            if before != table:
                _take_keys(connection, table_uuid, before, table)
                _move_history(connection, table_uuid, before, table)
                # Under its own name, a table that was paused is paused again by its name.
                if found.paused:
                    pause_table(connection, str(table))
            connection.execute(delete(schema.vanished).where(_vanished.table_uuid == table_uuid))
            return True


def _uuid_of(connection: Connection, table: TableIdentifier) -> str | None:
    return connection.execute(select(_known.table_uuid).where(_known.identifier == str(table)).with_for_update()).scalar()


def _nowhere(table_uuid: str) -> TableIdentifier:
    """A name that no table can have: catalogs have no `~`."""
    return TableIdentifier("~", (), table_uuid)


def _displace(connection: Connection, table: TableIdentifier) -> None:
    """Let the table that has vanished from this name, if there is one, keep its history and its keys until it is found again."""
    name = str(table)
    table_uuid = _uuid_of(connection, table)
    keep_uuid(connection, name)
    if table_uuid is not None:
        _move_keys(connection, table, _nowhere(table_uuid), ())
    remove_table(connection, name)
    for one in _ONE_EACH:
        connection.execute(delete(one).where(one.c.identifier == name))


def _move(connection: Connection, table_uuid: str, old: TableIdentifier, new: TableIdentifier) -> None:
    before, after = str(old), str(new)
    row = update(schema.table_state).where(_known.identifier == before)
    versions = {"index_version": new_version(), "nodes_version": new_version()}
    connection.execute(row.values(identifier=after, catalog=new.catalog, unseen_rounds=0, unseen_since=None, **versions))
    for one in _BY_NAME:
        connection.execute(update(one).where(one.c.identifier == before).values(identifier=after))
    # Two looks confirm an orphan file. The next ones are made under the new name.
    connection.execute(delete(schema.orphan_look).where(schema.orphan_look.c.identifier == before))
    _move_nodes(connection, old, new)
    _move_values(connection, schema.task, schema.task.c.task_id, "planned", old, new, lambda task: task.table_uuid == table_uuid)
    _move_history(connection, table_uuid, old, new)
    _move_values(connection, schema.orphan_deletion, schema.orphan_deletion.c.record_id, "value", old, new, lambda deletion: True)


def _move_history(connection: Connection, table_uuid: str, old: TableIdentifier, new: TableIdentifier) -> None:
    """Move what is known of the table by its uuid: records, consumers, and what upkeep has seen of it."""
    _move_records(connection, table_uuid, old, new)
    for records in (schema.upkeep_record, schema.upkeep_commit):
        _move_values(connection, records, records.c.record_id, "value", old, new, lambda record: _is_of(record, table_uuid, old))
    _move_consumers(connection, table_uuid, old, new)
    _take_consumers(connection, table_uuid, old, new)
    columns = schema.sightings.c
    seen = connection.execute(select(columns.value).where(columns.identifier == str(old))).scalar()
    if seen is not None and seen.table_uuid == table_uuid:
        connection.execute(delete(schema.sightings).where(columns.identifier == str(new)))
        connection.execute(update(schema.sightings).where(columns.identifier == str(old)).values(identifier=str(new)))


def _is_of(record: Any, table_uuid: str, table: TableIdentifier) -> bool:
    """Whether a record of upkeep is about this table. The change store of a keyed table has a uuid of its own."""
    target = getattr(record, "target", record)
    return bool(target.store != table or target.table_uuid == table_uuid)


def _renamed(value: Any, old: TableIdentifier, new: TableIdentifier) -> Any:
    """The same value with the new name in it."""
    if hasattr(value, "target"):
        return replace(value, target=_renamed(value.target, old, new))
    names = {"table": new}
    if "store" in getattr(value, "__dataclass_fields__", {}) and value.store == old:
        names["store"] = new
    return replace(value, **names)


def _move_values(
    connection: Connection,
    rows: Table,
    key: Column[Any],
    column: str,
    old: TableIdentifier,
    new: TableIdentifier,
    is_of_table: Callable[[Any], bool],
) -> None:
    """Move rows whose value repeats the name. `key` is their primary key."""
    found = connection.execute(select(key, rows.c[column]).where(rows.c.identifier == str(old)).order_by(key)).all()
    for identity, value in found:
        if is_of_table(value):
            changed = {"identifier": str(new), column: _renamed(value, old, new)}
            connection.execute(update(rows).where(key == identity).values(changed))


def _move_records(connection: Connection, table_uuid: str, old: TableIdentifier, new: TableIdentifier) -> None:
    found = connection.execute(
        select(_record.record_id, _record.value).where(_record.identifier == str(old), _record.table_uuid == table_uuid)
    )
    for record_id, value in found.all():
        moved = _opened_again(replace(value, table=new))
        changed: dict[str, Any] = {"identifier": str(new), "value": moved}
        if moved.status is not value.status:
            # Dagster may have been told how it ended, and is told again.
            changed |= {"status": moved.status, "ended_at": moved.ended_at, "mirrored": False}
        connection.execute(update(schema.record).where(_record.record_id == record_id).values(changed))


def _opened_again(record: CompactionRecord) -> CompactionRecord:
    """The record, to be settled once more when no answer of the catalog said that its commit failed.

    It was looked for under a name that its table did not have any more, so it may have landed all the same.
    """
    if record.status is not RecordStatus.FAILED or record.answered:
        return record
    return replace(record, status=RecordStatus.UNKNOWN, ended_at=None)


def _move_consumers(connection: Connection, table_uuid: str, old: TableIdentifier, new: TableIdentifier) -> None:
    columns = schema.consumer.c
    for value in connection.execute(select(columns.value).where(columns.identifier == str(old))).scalars().all():
        if value.store == old and value.table_uuid != table_uuid:
            continue
        moved = _renamed(value, old, new)
        set_consumer_aside(connection, moved)
        values = {"until": moved.until, "value": moved}
        row = upsert(connection, schema.consumer).values(identifier=str(new), name=moved.name, **values)
        connection.execute(row.on_conflict_do_update(index_elements=["identifier", "name"], set_=values))
        connection.execute(delete(schema.consumer).where(columns.identifier == str(old), columns.name == moved.name))


def set_consumer_aside(connection: Connection, coming: Consumer) -> None:
    """Make room for a consumer. One of the same name on another table that had this name keeps its snapshots, under a name of no table."""
    columns = schema.consumer.c
    is_here = and_(columns.identifier == str(coming.table), columns.name == coming.name)
    found = connection.execute(select(columns.value).where(is_here)).scalar()
    if found is not None and found.store == coming.store and found.table_uuid != coming.table_uuid:
        aside = str(_nowhere(found.table_uuid))
        connection.execute(delete(schema.consumer).where(columns.identifier == aside, columns.name == coming.name))
        connection.execute(update(schema.consumer).where(is_here).values(identifier=aside))


def _take_consumers(connection: Connection, table_uuid: str, before: TableIdentifier, table: TableIdentifier) -> None:
    """Give a table that is found again the consumers that were set aside."""
    columns, aside = schema.consumer.c, str(_nowhere(table_uuid))
    for value in connection.execute(select(columns.value).where(columns.identifier == aside)).scalars().all():
        moved = _renamed(value, before, table)
        set_consumer_aside(connection, moved)
        is_it = and_(columns.identifier == aside, columns.name == value.name)
        connection.execute(update(schema.consumer).where(is_it).values(identifier=str(table), value=moved))


def _move_nodes(connection: Connection, old: TableIdentifier, new: TableIdentifier) -> None:
    columns = schema.node.c
    nodes = [row.node for row in connection.execute(select(columns.node).where(columns.identifier == str(old)).order_by(columns.identity))]
    # A node refers to nothing, and its key is found by the same text.
    for node in nodes:
        row = update(schema.node).where(columns.identity == long_key(old, node))
        connection.execute(row.values(identity=long_key(new, node), identifier=str(new)))
    _move_keys(connection, old, new, nodes)


def _move_keys(connection: Connection, old: TableIdentifier, new: TableIdentifier, nodes: Iterable[TableNode]) -> None:
    """Let the nodes of a table keep their keys under its new name, also those that hold no file now."""
    columns = schema.node_key.c
    before, after = f"{table_key(old)}/", f"{table_key(new)}/"
    exact = {long_key(old, node): long_key(new, node) for node in nodes}
    query = select(columns.identity).where(columns.identity.startswith(before, autoescape=True)).order_by(columns.identity)
    for identity in connection.execute(query).scalars().all():
        moved = exact.get(identity) or f"{after}{identity[len(before) :]}"
        # A name that was cut ends with the digest of its whole form, so the new one is known for nodes alone that are there.
        if identity not in exact and ("~" in identity[len(before) :] or len(moved) > MAX_KEY_BYTES):
            continue
        _set_aside(connection, moved)
        connection.execute(update(schema.node_key).where(columns.identity == identity).values(identity=moved))


def _set_aside(connection: Connection, identity: str) -> None:
    """Make room for a key. The one of a former table of that name stays taken for ever, under a text that no node has."""
    columns = schema.node_key.c
    key = connection.execute(select(columns.key).where(columns.identity == identity)).scalar()
    if key is not None:
        aside = f"~{sha256(f'{identity} {key}'.encode()).hexdigest()}"
        connection.execute(update(schema.node_key).where(columns.identity == identity).values(identity=aside))


def _take_keys(connection: Connection, table_uuid: str, before: TableIdentifier, table: TableIdentifier) -> None:
    """Give a table that is found again its keys.

    They are where it was displaced to, or under its last name if no other table had that since.
    """
    aside = _nowhere(table_uuid)
    was_displaced = connection.execute(
        select(schema.node_key.c.identity).where(schema.node_key.c.identity.startswith(f"{table_key(aside)}/", autoescape=True)).limit(1)
    ).first()
    source = aside if was_displaced else before
    if not was_displaced:
        newest = select(_vanished.table_uuid).where(_vanished.identifier == str(before)).order_by(_vanished.at.desc()).limit(1)
        if _uuid_of(connection, before) is not None or connection.execute(newest).scalar() != table_uuid:
            return
    former = select(_vanished.table_uuid).where(_vanished.identifier == str(table), _vanished.table_uuid != table_uuid)
    other = connection.execute(former.order_by(_vanished.at.desc()).limit(1)).scalar()
    if other is not None:
        _move_keys(connection, table, _nowhere(other), ())
    _move_keys(connection, source, table, ())
