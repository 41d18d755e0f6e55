"""The transactions of the dependency center's leader: make instances, apply facts, spread what changed, release what misses nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, insert, select, tuple_, update
from sqlalchemy.orm import aliased

from compaction_pipeline.core.dependencies.center.inbox import NOTHING, Fact, Known, RunId, apply
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import run_subject
from compaction_pipeline.core.dependencies.center.ports import LEADER, Leader, Made, Turn
from compaction_pipeline.core.dependencies.center.subjects import THERE
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center import (
    FACT,
    INSTANCE,
    JOB,
    LOCK,
    REQUIREMENT,
    SUBJECT,
    CenterDoors,
    instance_of,
    is_version,
    make_instances,
    miscounted,
    misses,
    put_reached,
    put_turns,
)
from compaction_pipeline.storage.engine import batches, lock, upsert, writing

_number, _lease = schema.center_number.c, schema.lease.c
_BUSY = (InstanceState.READY, InstanceState.RUNNING)


class SqlCenterStore(CenterDoors):
    """The dependency center in the state database."""

    def is_idle(self, now: datetime) -> bool:
        work = (
            select(FACT.id),
            select(JOB.name).where(JOB.at <= now),
            select(SUBJECT.id).where(SUBJECT.spread.is_(False)),
            select(INSTANCE.id).where(INSTANCE.state == InstanceState.WAITING, INSTANCE.missing == 0),
        )
        return not any(self._first(query.limit(1)) for query in work)

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
        with self._led(leader) as connection:
            if connection is None:
                return 0
            rows = connection.execute(select(schema.center_fact).order_by(FACT.id).limit(most)).all()
            if not rows:
                return 0
            facts: list[Fact] = [row.value for row in rows]
            known = _known(connection, facts)
            before = dict(known.instances)
            apply(facts, known)
            _put_known(connection, known, leader)
            _put_instances(connection, before, known.instances)
            for some in batches([row.id for row in rows]):
                connection.execute(delete(schema.center_fact).where(FACT.id.in_(some)))
            return len(rows)

    def spread(self, leader: Leader, most: int) -> int:
        changed = 0
        with self._led(leader) as connection:
            if connection is None:
                return 0
            query = select(schema.center_subject).where(SUBJECT.spread.is_(False)).order_by(SUBJECT.at.desc(), SUBJECT.id).limit(most)
            for subject in connection.execute(query).all():
                if changed >= most:
                    break
                changed += _spread(connection, subject.id, subject.reached, subject.fell, most - changed, leader)
            return changed

    def release(self, leader: Leader, most: int) -> Sequence[Instance]:
        with self._led(leader) as connection:
            if connection is None:
                return ()
            other = aliased(schema.center_instance)
            is_busy = exists().where(
                other.c.job == INSTANCE.job, other.c.biz == INSTANCE.biz, other.c.id != INSTANCE.id, other.c.state.in_(_BUSY)
            )
            idle = (INSTANCE.state == InstanceState.WAITING, INSTANCE.missing == 0, ~misses(), ~is_busy)
            rows = connection.execute(select(schema.center_instance).where(*idle).order_by(INSTANCE.id).limit(most)).all()
            # Of one job and business time one instance runs at a time.
            first = {(row.job, row.biz): instance_of(row) for row in reversed(rows)}
            by_receiver = {row.id: row.receiver for row in rows}
            started = [one for one in first.values() if by_receiver[one.id] is not None]
            virtual = [one for one in first.values() if by_receiver[one.id] is None]
            ready = [replace(one, state=InstanceState.READY, ready_at=leader.now) for one in started]
            ended = [replace(one, state=InstanceState.SUCCEEDED, ready_at=leader.now, ended_at=leader.now) for one in virtual]
            for some in batches([one.id for one in ready]):
                values = {"state": InstanceState.READY, "ready_at": leader.now}
                connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(values))
            for some in batches([one.id for one in ended]):
                values = {"state": InstanceState.SUCCEEDED, "ready_at": leader.now, "ended_at": leader.now}
                connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(values))
            put_reached(connection, {run_subject(one.job, one.biz, one.origin).key: THERE for one in ended}, {}, leader.now)
            return [*ready, *ended]

    def recount(self) -> int:
        return int(self._values(miscounted())[0])

    @contextmanager
    def _led(self, leader: Leader) -> Iterator[Connection | None]:
        with writing(self._engine) as connection:
            lock(connection, LOCK)
            yield connection if _leads(connection, leader) else None


def _leads(connection: Connection, leader: Leader) -> bool:
    """Whether the leader still leads. Nobody takes the lease before this transaction ends."""
    held = (_lease.name == LEADER, _lease.owner == leader.owner, _lease.expires_at > leader.now)
    return connection.execute(select(_lease.owner).where(*held).with_for_update(read=True)).first() is not None


def _known(connection: Connection, facts: Sequence[Fact]) -> Known:
    reached: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    for keys in batches(sorted({fact.key for fact in facts})):
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
    for (key, source), number in known.numbers.items():
        row = upsert(connection, schema.center_number).values(key=key, source=source, number=number)
        connection.execute(row.on_conflict_do_update(index_elements=["key", "source"], set_={"number": number}))


def _put_instances(connection: Connection, before: dict[RunId, Instance], after: dict[RunId, Instance]) -> None:
    for run, one in after.items():
        if one == before.get(run):
            continue
        names = ("generation", "state", "ready_at", "claimed_at", "delivered_at", "ended_at", "changed_at")
        values = {name: getattr(one, name) for name in names}
        if run in before:
            connection.execute(update(schema.center_instance).where(INSTANCE.id == one.id).values(values))
        else:
            made = {"job": one.job, "biz": one.biz, "origin": one.origin, "part": one.part, "missing": 0, "made_at": one.made_at}
            connection.execute(insert(schema.center_instance).values(**made, **values))


def _spread(connection: Connection, subject_id: int, reached: int, fell: int | None, most: int, leader: Leader) -> int:
    """Tell about so many instances of one change. Return how many requirements changed, and one more when all are told."""
    of_subject = and_(REQUIREMENT.subject_id == subject_id, REQUIREMENT.instance_id == INSTANCE.id)
    gone = and_(of_subject, REQUIREMENT.met.is_(True), REQUIREMENT.bound > reached, INSTANCE.claimed_at.is_(None))
    came = and_(of_subject, REQUIREMENT.met.is_(False), REQUIREMENT.bound <= reached, INSTANCE.claimed_at.is_(None))
    taken_back = _flip(connection, subject_id, gone, reached, most, to=False)
    _change_missing(connection, taken_back, +1)
    _take_back(connection, list(taken_back), leader)
    told = sum(taken_back.values())
    there = _flip(connection, subject_id, came, reached, most - told, to=True) if told < most else Counter()
    _change_missing(connection, there, -1)
    told += sum(there.values())
    # A claim that came between may have taken what was counted, so what is left is looked for.
    if not _is_any(connection, gone):
        if fell is not None:
            _note_changed(connection, subject_id, fell, leader)
        is_over = not _is_any(connection, came)
        connection.execute(update(schema.center_subject).where(SUBJECT.id == subject_id).values(spread=is_over, fell=None))
        told += is_over
    return told


def _is_any(connection: Connection, which: ColumnElement[bool]) -> bool:
    return connection.execute(select(REQUIREMENT.edge).where(which).limit(1)).first() is not None


def _note_changed(connection: Connection, subject_id: int, fell: int, leader: Leader) -> None:
    """Something had fallen. What was started on it ran on what it was before, and what succeeded by it was taken back and came back."""
    used = select(REQUIREMENT.instance_id).where(REQUIREMENT.subject_id == subject_id, REQUIREMENT.met.is_(True), REQUIREMENT.bound > fell)
    ran = and_(INSTANCE.id.in_(used), INSTANCE.claimed_at.is_not(None), INSTANCE.changed_at.is_(None))
    connection.execute(update(schema.center_instance).where(ran).values(changed_at=leader.now))
    made = and_(INSTANCE.id.in_(used), INSTANCE.claimed_at.is_(None), INSTANCE.state == InstanceState.SUCCEEDED)
    runs = connection.execute(select(INSTANCE.job, INSTANCE.biz, INSTANCE.origin).where(made)).all()
    keys = [run_subject(row.job, row.biz, row.origin).key for row in runs]
    put_reached(connection, dict.fromkeys(keys, THERE), dict.fromkeys(keys, NOTHING), leader.now)


def _flip(connection: Connection, subject_id: int, which: ColumnElement[bool], reached: int, most: int, *, to: bool) -> Counter[int]:
    """Change whether a subject is there for at most so many requirements. Return how many of each instance."""
    query = select(REQUIREMENT.instance_id).where(which).limit(most)
    # A receiver may claim one of them now. It waits, or we do.
    numbers = sorted(set(connection.execute(query.with_for_update(of=schema.center_instance)).scalars()))
    bounds = REQUIREMENT.bound <= reached if to else REQUIREMENT.bound > reached
    counts: Counter[int] = Counter()
    for some in batches(numbers):
        rows = (REQUIREMENT.subject_id == subject_id, REQUIREMENT.instance_id.in_(some), REQUIREMENT.met.is_(not to), bounds)
        flipped = update(schema.center_requirement).where(*rows).values(met=to).returning(REQUIREMENT.instance_id)
        counts.update(connection.execute(flipped).scalars())
    return counts


def _change_missing(connection: Connection, counts: Counter[int], by: int) -> None:
    for count in set(counts.values()):
        for some in batches([number for number, one in counts.items() if one == count]):
            connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(missing=INSTANCE.missing + by * count))


def _take_back(connection: Connection, numbers: list[int], leader: Leader) -> None:
    """Let instances wait again that nobody claimed. Those that succeed by themselves take back what waits for them."""
    for some in batches(numbers):
        ended = (INSTANCE.id.in_(some), INSTANCE.state == InstanceState.SUCCEEDED)
        runs = connection.execute(select(INSTANCE.job, INSTANCE.biz, INSTANCE.origin).where(*ended)).all()
        keys = {run_subject(row.job, row.biz, row.origin).key: NOTHING for row in runs}
        put_reached(connection, keys, keys, leader.now)
        values = {"state": InstanceState.WAITING, "ready_at": None, "ended_at": None}
        connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(values))
