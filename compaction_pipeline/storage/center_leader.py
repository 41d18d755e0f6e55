"""The transactions of the dependency center's leader: make instances, apply facts, spread what changed, release what misses nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Select, bindparam, delete, func, insert, or_, select, tuple_, update
from sqlalchemy.exc import DataError

from compaction_pipeline.core.dependencies.center.inbox import Fact, Known, RunId, apply
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import run_subject
from compaction_pipeline.core.dependencies.center.ports import LEADER, Leader, Made, Released, Told, Turn
from compaction_pipeline.core.dependencies.center.strength import lacking, note_of
from compaction_pipeline.core.dependencies.center.subjects import THERE
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center import CenterDoors
from compaction_pipeline.storage.center_facts import FACT, TEXT
from compaction_pipeline.storage.center_groups import GROUP, NOW, has_all, stored_groups
from compaction_pipeline.storage.center_rows import (
    INSTANCE,
    JOB,
    LOCK,
    SUBJECT,
    instance_of,
    is_version,
    make_instances,
    miscounted,
    put_reached,
    put_turns,
    take_back_by,
)
from compaction_pipeline.storage.center_spread import BUSY, RUN, has_beside, regroup, run_of, spread_changes
from compaction_pipeline.storage.engine import batches, lock, upsert, writing
from compaction_pipeline.storage.many_rows import insert_rows

_number, _lease = schema.center_number.c, schema.lease.c
_SINGLY = 100
"""So many facts are applied one by one in a pass, when one of them cannot be applied."""
_LOG = logging.getLogger(__name__)


class SqlCenterStore(CenterDoors):
    """The dependency center in the state database."""

    def is_idle(self, now: datetime) -> bool:
        (asked,) = self._rows(_work(), now=now)
        if asked.has_work:
            return False
        return not asked.misses_nothing or self._first(_first_to_release(), now=now) is None

    def due(self, leader: Leader, most: int) -> Sequence[Turn]:
        rows = self._rows(select(schema.center_job).where(JOB.at <= leader.now).order_by(JOB.at, JOB.name).limit(most))
        return [Turn(row.name, row.biz, row.at) for row in rows]

    def make(self, leader: Leader, version: int, made: Sequence[Made], turns: Sequence[Turn]) -> int | None:
        with writing(self._engine) as connection:
            if not is_version(connection, version) or not _leads(connection, leader):
                return None
            count = sum(make_instances(connection, some, leader.now) for some in batches(made))
            put_turns(connection, turns)
            return count

    def take_in(self, leader: Leader, most: int) -> int:
        unapplied = select(FACT.id).where(FACT.problem.is_(None)).order_by(FACT.id)
        if self._first(unapplied.limit(1)) is None:
            return 0
        try:
            return self._take_in(leader, unapplied.limit(most))
        except Exception as error:
            if _is_passing(error):
                raise
        # One of them cannot be applied, and nothing was. So each is applied by itself.
        return sum(self._take_in_one(leader, number) for number in self._values(unapplied.limit(min(most, _SINGLY))))

    def _take_in_one(self, leader: Leader, number: int) -> int:
        try:
            return self._take_in(leader, select(FACT.id).where(FACT.id == number))
        except Exception as error:
            if _is_passing(error):
                raise
            problem = f"{type(error).__name__}: {error}"
        with self._led(leader) as connection:
            if connection is None:
                return 0
            noted = update(schema.center_fact).where(FACT.id == number).values(problem=problem).returning(TEXT)
            said = connection.execute(noted).scalar()
        _LOG.error("fact %d cannot be applied, so it is set aside, and the next ones are applied: %s; it is %s", number, problem, said)
        return 1

    def _take_in(self, leader: Leader, numbers: Select[tuple[int]]) -> int:
        with self._led(leader) as connection:
            if connection is None:
                return 0
            rows = connection.execute(select(FACT.id, FACT.value).where(FACT.id.in_(numbers)).order_by(FACT.id)).all()
            if not rows:
                return 0
            facts: list[Fact] = [row.value for row in rows]
            known = _known(connection, facts)
            before, told = dict(known.instances), dict(known.reached)
            apply(facts, known)
            # What was only looked at was told by nobody.
            named = {fact.key for fact in facts} | known.fell.keys()
            known.reached = {key: one for key, one in known.reached.items() if key in named or one != told.get(key)}
            _put_known(connection, known, leader)
            _put_instances(connection, before, known.instances)
            for some in batches([row.id for row in rows]):
                connection.execute(delete(schema.center_fact).where(FACT.id.in_(some)))
            return len(rows)

    def spread(self, leader: Leader, most: int) -> Told:
        query = select(SUBJECT.id).where(SUBJECT.spread.is_(False)).order_by(SUBJECT.at.desc(), SUBJECT.id).limit(most)
        if self._first(query) is None:
            return Told()
        with self._led(leader) as connection:
            if connection is None:
                return Told()
            changed = connection.execute(query).scalars().all()
            return spread_changes(connection, changed, most, leader) if changed else Told()

    def look_again(self, leader: Leader, most: int) -> int:
        query = select(GROUP.instance_id, GROUP.edge).where(GROUP.look_at <= leader.now).order_by(GROUP.look_at).limit(most)
        if self._first(query) is None:
            return 0
        with self._led(leader) as connection:
            if connection is None:
                return 0
            rows = connection.execute(query).all()
            for some in batches(sorted({row.instance_id for row in rows})):
                # A receiver may claim one of them now. It waits, or it has it already, and nothing changes any more.
                unclaimed = select(INSTANCE.id).where(INSTANCE.id.in_(some), INSTANCE.claimed_at.is_(None)).order_by(INSTANCE.id)
                open_ones = connection.execute(unclaimed.with_for_update()).scalars().all()
                closed = sorted(set(some) - set(open_ones))
                connection.execute(update(schema.center_group).where(GROUP.instance_id.in_(closed)).values(look_at=None))
                regroup(connection, open_ones, leader)
            return len(rows)

    def release(self, leader: Leader, most: int) -> Released:
        # One that waits for hours until another origin's has ended holds up no other process.
        if self._first(_first_to_release(), now=leader.now) is None:
            return Released()
        with self._led(leader) as connection:
            if connection is None:
                return Released()
            rows = connection.execute(_to_release(), {"now": leader.now, "most": most}).all()
            # Of one job and business time one instance runs at a time.
            first = {(row.job, row.biz): row for row in reversed(rows)}
            notes, untold = _notes(connection, [row.id for row in first.values() if row.receiver is not None], leader.now)
            started = [row for row in first.values() if row.receiver is not None and row.id not in untold]
            ended = [row for row in first.values() if row.receiver is None]
            ready = [row.id for row in started]
            for some in batches(ready):
                values = {"state": InstanceState.READY, "ready_at": leader.now}
                connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(values))
            for number, note in notes.items():
                connection.execute(update(schema.center_instance).where(INSTANCE.id == number).values(note=note))
            for some in batches([row.id for row in ended]):
                values = {"state": InstanceState.SUCCEEDED, "ready_at": leader.now, "ended_at": leader.now}
                connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(values))
            put_reached(connection, {run_subject(row.job, row.biz, row.origin).key: THERE for row in ended}, {}, leader.now)
            return Released([run_of(row) for row in started], [run_of(row) for row in ended])

    def recount(self) -> int:
        return int(self._values(miscounted())[0])

    @contextmanager
    def _led(self, leader: Leader) -> Iterator[Connection | None]:
        with writing(self._engine) as connection:
            lock(connection, LOCK)
            yield connection if _leads(connection, leader) else None


@cache
def _work() -> Select[Any]:
    # PostgreSQL reads a minimum from its index. Asked whether some row is due, it may read the whole table, as long as it has no
    # statistics: 12,000 jobs took 30 ms.
    firsts = (select(func.min(JOB.at)), select(func.min(GROUP.look_at)))
    changes = select(func.min(SUBJECT.at)).where(SUBJECT.spread.is_(False))
    work = (
        select(FACT.id).where(FACT.problem.is_(None)).exists(),
        *(first.scalar_subquery() <= NOW for first in firsts),
        changes.scalar_subquery().is_not(None),
    )
    misses_nothing = select(INSTANCE.id).where(INSTANCE.state == InstanceState.WAITING, INSTANCE.missing == 0).exists()
    # Five times a second, so one statement, without the question that is long to plan.
    return select(func.coalesce(or_(*work), False).label("has_work"), misses_nothing.label("misses_nothing"))


def _may_start() -> tuple[ColumnElement[bool], ...]:
    """What is so of instances that miss nothing, and in whose place no other one is ready or runs."""
    return (INSTANCE.state == InstanceState.WAITING, INSTANCE.missing == 0, has_all(), ~has_beside(BUSY))


@cache
def _first_to_release() -> Select[Any]:
    return select(INSTANCE.id).where(*_may_start()).limit(1)


@cache
def _to_release() -> Select[Any]:
    query = select(INSTANCE.id, INSTANCE.receiver, *RUN).where(*_may_start())
    return query.order_by(INSTANCE.id).limit(bindparam("most", type_=Integer()))


def _leads(connection: Connection, leader: Leader) -> bool:
    """Whether the leader still leads. Nobody takes the lease before this transaction ends."""
    held = (_lease.name == LEADER, _lease.owner == leader.owner, _lease.expires_at > leader.now)
    return connection.execute(select(_lease.owner).where(*held).with_for_update(read=True)).first() is not None


def _is_passing(error: Exception) -> bool:
    """Whether the database did not answer, or memory was short, so that nothing is wrong with the fact."""
    if isinstance(error, StorageUnavailable):
        return not isinstance(error.__cause__, DataError)
    return isinstance(error, MemoryError)


def _known(connection: Connection, facts: Sequence[Fact]) -> Known:
    reached: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    for keys in batches(sorted({key for fact in facts for key in fact.keys})):
        reached.update(
            (row.key, row.reached) for row in connection.execute(select(SUBJECT.key, SUBJECT.reached).where(SUBJECT.key.in_(keys)))
        )
        rows = connection.execute(select(schema.center_number).where(_number.key.in_(keys)))
        numbers.update(((row.key, row.source), row.number) for row in rows)
    instances: dict[RunId, Instance] = {}
    runs = {(fact.run.job, fact.run.biz, fact.run.origin, fact.run.part) for fact in facts if fact.run is not None}
    same = tuple_(INSTANCE.job, INSTANCE.biz, INSTANCE.origin, INSTANCE.part)
    for some in batches(sorted(runs)):
        for row in connection.execute(select(schema.center_instance).where(same.in_(some))):
            instances[RunId(row.job, row.biz, row.origin, row.part)] = instance_of(row)
    return Known(reached, instances, numbers)


def _put_known(connection: Connection, known: Known, leader: Leader) -> None:
    put_reached(connection, known.reached, known.fell, leader.now)
    take_back_by(connection, known.fell, leader.now)
    numbers = [{"key": key, "source": source, "number": number} for (key, source), number in known.numbers.items()]
    for some in batches(numbers):
        fresh = upsert(connection, schema.center_number)
        insert_rows(connection, fresh.on_conflict_do_update(index_elements=["key", "source"], set_={"number": fresh.excluded.number}), some)


def _put_instances(connection: Connection, before: dict[RunId, Instance], after: dict[RunId, Instance]) -> None:
    names = ("generation", "state", "ready_at", "claimed_at", "delivered_at", "ended_at", "changed_at", "note")
    # By id, as all that change several instances.
    changed = sorted((one for run, one in after.items() if run in before and one != before[run]), key=lambda one: one.id)
    made = [one for run, one in after.items() if run not in before]
    if changed:
        update_one = (
            update(schema.center_instance).where(INSTANCE.id == bindparam("of_id")).values({n: bindparam(f"new_{n}") for n in names})
        )
        connection.execute(update_one, [{"of_id": one.id, **{f"new_{name}": getattr(one, name) for name in names}} for one in changed])
    if made:
        run = ("job", "biz", "origin", "part", "made_at")
        rows = [{"missing": 0, **{name: getattr(one, name) for name in (*run, *names)}} for one in made]
        insert_rows(connection, insert(schema.center_instance), rows)


def _notes(connection: Connection, instances: Sequence[int], now: datetime) -> tuple[dict[int, str], set[int]]:
    """What those of these instances that become ready now start without; and those that must be told first of what came.

    One that starts by its until, beside something that is there and that it was not told of, would not hear of it when that is taken back:
    it would start without it, and its note would not say so.
    """
    notes, untold = dict[int, str](), set[int]()
    for number, same in groupby(stored_groups(connection, instances), lambda one: one.instance_id):
        passed = []
        for one in same:
            if any(row.now.is_there and not row.told.is_there for row in one.rows) and lacking(one.group, one.told, now) is not None:
                untold.add(number)
            lacks = lacking(one.group, [row.now for row in one.rows], now)
            if lacks is not None and one.group.until_at is not None:
                subjects = [row.subject for row in one.rows if row.now in lacks]
                passed.append((one.group.until_at, subjects, all(row.failed for row in lacks)))
        note = note_of(passed)
        if note is not None and number not in untold:
            notes[number] = note
    return notes, untold
