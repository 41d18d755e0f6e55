"""Tells instances of what changed: counts what came and what was taken back, and judges the groups of weak needs anew.

`center_leader` has the transactions in which this is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import cache
from itertools import groupby
from typing import Any

from sqlalchemy import BindParameter, ColumnElement, Connection, Integer, Select, and_, bindparam, exists, select, tuple_, update
from sqlalchemy.orm import aliased
from sqlalchemy.sql.dml import ReturningUpdate

from compaction_pipeline.core.dependencies.center.inbox import NOTHING, RunId
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.jobs import run_subject
from compaction_pipeline.core.dependencies.center.ports import Leader, Told
from compaction_pipeline.core.dependencies.center.strength import is_met, lacking, next_look
from compaction_pipeline.core.dependencies.center.subjects import THERE
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_groups import GROUP, NOW, each, has_all, stored_groups
from compaction_pipeline.storage.center_rows import INSTANCE, REQUIREMENT, SUBJECT, put_reached, take_back_by
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches

_OTHER = aliased(schema.center_instance)
RUN = (INSTANCE.job, INSTANCE.biz, INSTANCE.origin, INSTANCE.part)
BUSY = (InstanceState.READY, InstanceState.RUNNING)
"""An instance in one of these states keeps others of its job and business time from starting."""


def has_beside(states: Sequence[InstanceState]) -> ColumnElement[bool]:
    """Whether there is another instance of the same job and business time in one of these states."""
    other = _OTHER.c
    return each(
        select(other.id).where(other.job == INSTANCE.job, other.biz == INSTANCE.biz, other.id != INSTANCE.id, other.state.in_(states))
    )


def run_of(row: StoredRow) -> RunId:
    """The run of a row that has the columns of `RUN`."""
    return RunId(row.job, row.biz, row.origin, row.part)


def spread_changes(connection: Connection, subjects: Sequence[int], most: int, leader: Leader) -> Told:
    """Tell at most so many instances of the changes of these subjects, by their ids, in this order."""
    taken_back, weak_back = _flip(connection, subjects, most, to=False)
    _change_missing(connection, taken_back, +1)
    _take_back(connection, list(taken_back), leader)
    told = sum(taken_back.values()) + sum(weak_back.values())
    there, weak_there = _flip(connection, subjects, most - told, to=True) if told < most else (Counter[int](), Counter[int]())
    released = _count_down(connection, there, leader)
    # What was taken back is judged by the time that it is now.
    regroup(connection, {*taken_back, *weak_back, *weak_there}, leader, weak_back)
    # A claim that came between may have taken what was counted, so what is left is looked for.
    back = [one for some in batches(subjects) for one in connection.execute(_WITHOUT_GONE, {"some": some}).scalars()]
    ran, made = _used(connection, back)
    ended = [one for some in batches(back) for one in connection.execute(_WITHOUT_CAME, {"some": some}).scalars()]
    for some in batches(back):
        connection.execute(update(schema.center_subject).where(SUBJECT.id.in_(some)).values(fell=None))
    _tell_of_failed(connection, ended, leader)
    for some in batches(ended):
        connection.execute(update(schema.center_subject).where(SUBJECT.id.in_(some)).values(spread=True))
    for some in batches(ran):
        # Something had fallen. What was started on it ran on what it was before.
        connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(changed_at=leader.now))
    # What succeeded by it was taken back, and came back: where nothing else is missing that nobody was told of yet.
    remade = _whole(connection, made, leader.now)
    put_reached(connection, dict.fromkeys(remade, THERE), dict.fromkeys(remade, NOTHING), leader.now)
    return Told(told + sum(there.values()) + sum(weak_there.values()) + len(ended), released)


_SOME: BindParameter[int] = bindparam("some", expanding=True)
"""The ids that a statement is about, which are given to it by this name. To build the statements anew took most of a pass's time."""
_OF_INSTANCE = and_(REQUIREMENT.subject_id == SUBJECT.id, REQUIREMENT.instance_id == INSTANCE.id, INSTANCE.claimed_at.is_(None))
_GONE = and_(_OF_INSTANCE, REQUIREMENT.met.is_(True), REQUIREMENT.bound > SUBJECT.reached)
_CAME = and_(_OF_INSTANCE, REQUIREMENT.met.is_(False), REQUIREMENT.bound <= SUBJECT.reached)


def _without(which: ColumnElement[bool]) -> Select[tuple[int]]:
    """A query for those of `_SOME` subjects of which no such requirement is left."""
    left = exists(select(REQUIREMENT.edge).where(which).correlate(schema.center_subject))
    return select(SUBJECT.id).where(SUBJECT.id.in_(_SOME), ~left)


_WITHOUT_GONE, _WITHOUT_CAME = _without(_GONE), _without(_CAME)
_OF_FALLEN = (REQUIREMENT.subject_id == SUBJECT.id, REQUIREMENT.met.is_(True), REQUIREMENT.bound > SUBJECT.fell)
_ON_FALLEN = select(REQUIREMENT.instance_id).where(SUBJECT.id.in_(_SOME), SUBJECT.fell.is_not(None), *_OF_FALLEN)
_USED = select(schema.center_instance).where(INSTANCE.id.in_(_ON_FALLEN))


def _used(connection: Connection, subjects: Sequence[int]) -> tuple[list[int], list[int]]:
    """Of those of these subjects that had fallen: the instances that were started on them, and those that succeeded by them."""
    ran: list[int] = []
    made: list[int] = []
    for some in batches(subjects):
        for row in connection.execute(_USED, {"some": some}):
            if row.claimed_at is not None and row.changed_at is None:
                ran.append(row.id)
            elif row.claimed_at is None and row.state is InstanceState.SUCCEEDED:
                made.append(row.id)
    return ran, made


@cache
def _all_there() -> Select[Any]:
    return select(INSTANCE.job, INSTANCE.biz, INSTANCE.origin).where(INSTANCE.id.in_(_SOME), has_all())


def _whole(connection: Connection, instances: Sequence[int], now: datetime) -> list[str]:
    """The keys of the runs of those of these instances of which all is there now."""
    found: list[str] = []
    for some in batches(instances):
        rows = connection.execute(_all_there(), {"some": some, "now": now})
        found += [run_subject(row.job, row.biz, row.origin).key for row in rows]
    return found


@cache
def _flipped(*, to: bool, several: bool) -> ReturningUpdate[Any]:
    columns = (REQUIREMENT.instance_id, REQUIREMENT.edge, REQUIREMENT.subject_id, REQUIREMENT.bound)
    query = select(*columns).where(SUBJECT.id.in_(_SOME), _CAME if to else _GONE)
    if several:
        # To sort what waits for one large change would read all of it for each step.
        query = query.order_by(SUBJECT.at.desc(), SUBJECT.id)
    # A receiver may claim one of them now. It waits, or we do.
    query = query.limit(bindparam("most", type_=Integer())).with_for_update(of=schema.center_instance)
    chosen = select(query.correlate(None).cte("chosen"))
    flipped = update(schema.center_requirement).where(tuple_(*columns).in_(chosen)).values(met=to)
    return flipped.returning(REQUIREMENT.instance_id, REQUIREMENT.opens_at)


def _flip(connection: Connection, subjects: Sequence[int], most: int, *, to: bool) -> tuple[Counter[int], Counter[int]]:
    """Change whether these subjects are there for at most so many requirements. Return how many of each instance: of those that count by
    themselves, and of those in groups."""
    strong, weak, left = Counter[int](), Counter[int](), most
    for some in batches(subjects):
        rows = connection.execute(_flipped(to=to, several=len(some) > 1), {"some": some, "most": left}).all()
        strong.update(row.instance_id for row in rows if row.opens_at is None)
        weak.update(row.instance_id for row in rows if row.opens_at is not None)
        left -= len(rows)
        if left <= 0:
            break
    return strong, weak


def regroup(connection: Connection, instances: Collection[int], leader: Leader, fell: Collection[int] = ()) -> None:
    """Judge the groups of instances that nobody claimed anew, and count them. One that was ready and misses something now waits again; so
    does one of which something `fell`, and that can start without it, because its note must say so."""
    more, fewer, taken_back, changed = Counter[int](), Counter[int](), list[int](), list[dict[str, Any]]()
    for number, same in groupby(stored_groups(connection, sorted(instances)), lambda one: one.instance_id):
        groups = list(same)
        at = groups[0].ready_at
        is_held = number not in fell or all(lacking(one.group, one.told, at or leader.now) is None for one in groups)
        if at is not None and not (is_held and all(is_met(one.group, one.told, at) for one in groups)):
            at = None
            taken_back.append(number)
        for one in groups:
            met = is_met(one.group, one.told, at or leader.now)
            look_at = next_look(one.group, one.told, leader.now)
            more[number] += one.met and not met
            fewer[number] += met and not one.met
            if (met, look_at) != (one.met, one.look_at):
                changed.append({"of_id": number, "of_edge": one.group.edge, "is_met": met, "next": look_at})
    if changed:
        same_group = (GROUP.instance_id == bindparam("of_id"), GROUP.edge == bindparam("of_edge"))
        update_one = update(schema.center_group).where(*same_group).values(met=bindparam("is_met"), look_at=bindparam("next"))
        connection.execute(update_one, changed)
    _change_missing(connection, +more, +1)
    _change_missing(connection, +fewer, -1)
    _take_back(connection, taken_back, leader)


def _tell_of_failed(connection: Connection, subjects: Sequence[int], leader: Leader) -> None:
    """Let groups whose until is over look again at runs that failed, and at those of which nothing is there, because they may have failed
    before: no requirement tells the difference. Other groups see it when their until is over."""
    for some in batches(subjects):
        absent = connection.execute(select(SUBJECT.id).where(SUBJECT.id.in_(some), SUBJECT.reached < THERE)).scalars().all()
        if absent:
            on_it = select(REQUIREMENT.instance_id, REQUIREMENT.edge).where(REQUIREMENT.subject_id.in_(absent))
            waits = (GROUP.waits_for_failed, GROUP.until_at <= leader.now, tuple_(GROUP.instance_id, GROUP.edge).in_(on_it))
            connection.execute(update(schema.center_group).where(*waits).values(look_at=leader.now))


_MORE = INSTANCE.missing + bindparam("more", type_=Integer())
_CHANGE_MISSING = update(schema.center_instance).where(INSTANCE.id.in_(_SOME)).values(missing=_MORE)


def _change_missing(connection: Connection, counts: Counter[int], by: int) -> None:
    for count in set(counts.values()):
        for some in batches([number for number, one in counts.items() if one == count]):
            connection.execute(_CHANGE_MISSING, {"some": some, "more": by * count})


@cache
def _last_came() -> ReturningUpdate[Any]:
    is_alone = ~has_beside((InstanceState.WAITING, *BUSY))
    is_plain = and_(INSTANCE.receiver.is_not(None), ~each(select(GROUP.edge).where(GROUP.instance_id == INSTANCE.id)))
    may_start = (INSTANCE.state == InstanceState.WAITING, is_plain, is_alone, has_all())
    is_last = INSTANCE.missing == bindparam("count", type_=Integer())
    last = update(schema.center_instance).where(INSTANCE.id.in_(_SOME), is_last, *may_start)
    return last.values(missing=0, state=InstanceState.READY, ready_at=NOW).returning(INSTANCE.id, *RUN)


def _count_down(connection: Connection, counts: Counter[int], leader: Leader) -> list[RunId]:
    """Note that so many things came of each instance. Return those that miss nothing more, and are ready now.

    So PostgreSQL writes their rows, with all indexes, once and not twice. What needs a closer look is left to `release`.
    """
    released, left = list[RunId](), Counter(counts)
    for count in set(counts.values()):
        for some in batches([number for number, one in counts.items() if one == count]):
            for row in connection.execute(_last_came(), {"some": some, "count": count, "now": leader.now}):
                released.append(run_of(row))
                del left[row.id]
    _change_missing(connection, left, -1)
    return released


def _take_back(connection: Connection, numbers: list[int], leader: Leader) -> None:
    """Let instances wait again that nobody claimed. Those that succeed by themselves take back what waits for them."""
    for some in batches(numbers):
        ended = (INSTANCE.id.in_(some), INSTANCE.state == InstanceState.SUCCEEDED)
        runs = connection.execute(select(INSTANCE.job, INSTANCE.biz, INSTANCE.origin).where(*ended)).all()
        keys = {run_subject(row.job, row.biz, row.origin).key: NOTHING for row in runs}
        put_reached(connection, keys, keys, leader.now)
        take_back_by(connection, keys, leader.now)
        values = {"state": InstanceState.WAITING, "ready_at": None, "ended_at": None, "note": None}
        connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(values))
