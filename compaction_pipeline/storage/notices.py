"""The outbox of notices: an event comes into it in the transaction that makes it true, and leaves it when it is old."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, Update, delete, select, update

from compaction_pipeline.core.capacity.notices.addresses import Address
from compaction_pipeline.core.capacity.notices.event import CLAIMED_FOR, Event
from compaction_pipeline.core.capacity.notices.ports import Notice, NoticeCounts
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import reading, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore

_EVENT, _NOTICE = schema.notice_event.c, schema.notice.c
_AT_ONCE = 100


def tell(connection: Connection, event: Event) -> None:
    """Let people be told of an event when this transaction is applied. An event that is there already is not told again."""
    row = {
        "event_id": event.event_id,
        "kind": event.kind,
        "queue": event.group,
        "team": event.team,
        "at": event.at,
        "lines": event.lines,
        "is_spread": False,
    }
    connection.execute(upsert(connection, schema.notice_event).values(row).on_conflict_do_nothing())


class SqlNoticeStore(SqlStore):
    """Notices in the state database."""

    def tell(self, event: Event) -> None:
        with writing(self._engine) as connection:
            tell(connection, event)

    def spread(self, addresses: Callable[[Sequence[str]], Sequence[Address]], now: datetime) -> int:
        with reading(self._engine) as connection:
            new = connection.execute(
                select(_EVENT.event_id, schema.team.c.owners)
                .outerjoin_from(schema.notice_event, schema.team, _EVENT.team == schema.team.c.name)
                .where(_EVENT.is_spread.is_(False))
                .order_by(_EVENT.at, _EVENT.event_id)
                .limit(_AT_ONCE)
            ).all()
        if not new:
            return 0
        rows = [
            {
                "event_id": event_id,
                "address": address.digest,
                "recipient": address.recipient,
                "tries": 0,
                "first_at": now,
                "due_at": now,
                "why": "",
            }
            for event_id, owners in new
            for address in addresses(owners or ())
        ]
        with writing(self._engine) as connection:
            # Another server may have done the same since: what it wrote stays.
            if rows:
                connection.execute(upsert(connection, schema.notice).on_conflict_do_nothing(), rows)
            ids = [event_id for event_id, _ in new]
            connection.execute(update(schema.notice_event).where(_EVENT.event_id.in_(ids)).values(is_spread=True))
        return len(rows)

    def claim(self, most: int, now: datetime) -> Sequence[Notice]:
        with writing(self._engine) as connection:
            due = (
                select(*_NOTICE, *(column for column in _EVENT if column.name != "event_id"))
                .join_from(schema.notice, schema.notice_event, _NOTICE.event_id == _EVENT.event_id)
                .where(_NOTICE.due_at <= now)
                .order_by(_NOTICE.due_at, _NOTICE.event_id, _NOTICE.address)
                .limit(most)
                .with_for_update(of=schema.notice, skip_locked=True)
            )
            found = [_notice(row) for row in connection.execute(due)]
            for notice in found:
                connection.execute(_of(notice).values(due_at=now + CLAIMED_FOR, tries=notice.tries))
        return found

    def sent(self, notice: Notice, now: datetime) -> None:
        self._write(_of(notice).values(sent_at=now, due_at=None, why=""))

    def failed(self, notice: Notice, why: str, again: datetime | None, now: datetime) -> None:
        self._write(_of(notice).where(_NOTICE.sent_at.is_(None)).values(why=why, due_at=again))

    def counts(self) -> Mapping[str, NoticeCounts]:
        sent, due = _NOTICE.sent_at.is_not(None), _NOTICE.due_at.is_not(None)
        query = (
            select(_EVENT.queue, _EVENT.is_spread, _NOTICE.address, sent.label("sent"), due.label("due"), _NOTICE.why)
            .outerjoin_from(schema.notice_event, schema.notice, _EVENT.event_id == _NOTICE.event_id)
            .order_by(_EVENT.at, _EVENT.event_id, _NOTICE.address)
        )
        found: dict[str, NoticeCounts] = {}
        for row in self._rows(query):
            one = found.get(row.queue, NoticeCounts())
            if row.address is None:
                one = replace(one, unheard=one.unheard + 1) if row.is_spread else replace(one, waiting=one.waiting + 1)
            elif not row.sent:
                one = replace(one, waiting=one.waiting + row.due, given_up=one.given_up + (not row.due), why=row.why or one.why)
            found[row.queue] = one
        return found

    def expire(self, before: datetime) -> int:
        with writing(self._engine) as connection:
            old = select(_EVENT.event_id).where(_EVENT.at < before)
            connection.execute(delete(schema.notice).where(_NOTICE.event_id.in_(old)))
            return connection.execute(delete(schema.notice_event).where(_EVENT.at < before)).rowcount


def _of(notice: Notice) -> Update:
    return update(schema.notice).where(_NOTICE.event_id == notice.event.event_id, _NOTICE.address == notice.address)


def _notice(row: StoredRow) -> Notice:
    event = Event(row.event_id, row.kind, row.queue, row.team, row.at, tuple(row.lines))
    return Notice(event, row.address, row.recipient, row.tries + 1, row.first_at)
