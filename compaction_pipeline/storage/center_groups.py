"""What instances need, as requirements that each count, and as groups of weak edges, which count as one.

`core.dependencies.center.strength` decides whether a group is met when something of it changes. `has_all` asks the subjects themselves once
more, and all at once, when something would start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, delete, exists, func, insert, or_, select
from sqlalchemy.orm import aliased

from compaction_pipeline.core.dependencies.center.inbox import FAILED
from compaction_pipeline.core.dependencies.center.ports import Made
from compaction_pipeline.core.dependencies.center.strength import Group, Standing, Strength, is_met, next_look
from compaction_pipeline.core.dependencies.center.subjects import THERE, Subject
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import Moment, StoredRow
from compaction_pipeline.storage.engine import batches
from compaction_pipeline.storage.many_rows import insert_rows

GROUP = schema.center_group.c
_INSTANCE, _SUBJECT, _REQUIREMENT = schema.center_instance.c, schema.center_subject.c, schema.center_requirement.c
# To name a table anew takes a third of a millisecond, and the leader asks five times a second.
_ONE, _OTHER, _NEWEST = (aliased(schema.center_requirement) for _ in range(3))
_OF_ONE = aliased(schema.center_subject)
NOW = bindparam("now", type_=Moment())
"""The time at which a statement with `has_all` runs, which is given to it by this name."""
Subjects = Mapping[str, tuple[int, int]]
"""The id of each key, and how far it is."""


class Row(NamedTuple):
    """A requirement of a group: as it was told to its instance, as it is now, and its subject."""

    told: Standing
    now: Standing
    subject: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A group of an instance that nobody has claimed. It is judged by the time at which the instance became ready, or else by now."""

    instance_id: int
    ready_at: datetime | None
    group: Group
    met: bool
    look_at: datetime | None
    rows: Sequence[Row]

    @property
    def told(self) -> Sequence[Standing]:
        return [row.told for row in self.rows]


def group_of(row: StoredRow) -> Group:
    """The group of a row of its table."""
    return Group(row.edge, row.strength, row.until_at, row.waits_for_failed)


def stored_groups(connection: Connection, instances: Sequence[int]) -> Iterator[Stored]:
    """The groups of those of these instances that nobody has claimed, by instance."""
    for some in batches(sorted(instances)):
        joined = schema.center_group.join(schema.center_instance, _INSTANCE.id == GROUP.instance_id)
        query = select(schema.center_group, _INSTANCE.ready_at).select_from(joined)
        mine = (GROUP.instance_id.in_(some), _INSTANCE.claimed_at.is_(None))
        groups = connection.execute(query.where(*mine).order_by(GROUP.instance_id, GROUP.edge)).all()
        if not groups:
            continue
        numbers = sorted({row.instance_id for row in groups})
        columns = (_REQUIREMENT.instance_id, _REQUIREMENT.edge, _REQUIREMENT.opens_at, _REQUIREMENT.bound, _REQUIREMENT.met)
        joined = schema.center_requirement.join(schema.center_subject, _SUBJECT.id == _REQUIREMENT.subject_id)
        weak = select(*columns, _SUBJECT.key, _SUBJECT.reached).select_from(joined).where(_REQUIREMENT.opens_at.is_not(None))
        order = (_REQUIREMENT.instance_id, _REQUIREMENT.edge, _REQUIREMENT.opens_at, _SUBJECT.key)
        found = connection.execute(weak.where(_REQUIREMENT.instance_id.in_(numbers)).order_by(*order)).all()
        rows = {place: [_row(one) for one in same] for place, same in groupby(found, lambda one: (one.instance_id, one.edge))}
        for one in groups:
            standing = rows.get((one.instance_id, one.edge), [])
            yield Stored(one.instance_id, one.ready_at, group_of(one), one.met, one.look_at, standing)


def _row(row: StoredRow) -> Row:
    failed = not row.met and _has_failed(row.reached, row.bound)
    is_there = row.reached >= row.bound
    told, now = Standing(row.opens_at, row.met, failed), Standing(row.opens_at, is_there, not is_there and failed)
    return Row(told, now, str(Subject(row.key, row.bound)))


def _has_failed(reached: int, bound: int) -> bool:
    return reached == FAILED and bound == THERE


def count_missing(one: Made, subjects: Subjects, now: datetime) -> int:
    """How many things are missing of what an instance needs that begins to wait now."""
    strong = sum(need.opens_at is None and subjects[need.subject.key][1] < need.subject.bound for need in one.requirements)
    return strong + sum(not is_met(group, rows, now) for group, rows in _groups_of(one, subjects))


def _groups_of(one: Made, subjects: Subjects) -> Iterator[tuple[Group, Sequence[Standing]]]:
    for group in one.groups:
        rows = []
        for need in one.requirements:
            if need.edge == group.edge and need.opens_at is not None:
                reached, bound = subjects[need.subject.key][1], need.subject.bound
                rows.append(Standing(need.opens_at, reached >= bound, _has_failed(reached, bound)))
        yield group, rows


def replace_requirements(connection: Connection, wanted: Mapping[int, Made], subjects: Subjects, now: datetime) -> None:
    """Replace what instances need."""
    for some in batches(list(wanted)):
        connection.execute(delete(schema.center_requirement).where(_REQUIREMENT.instance_id.in_(some)))
        connection.execute(delete(schema.center_group).where(GROUP.instance_id.in_(some)))
    insert_requirements(connection, wanted, subjects, now)


def insert_requirements(connection: Connection, wanted: Mapping[int, Made], subjects: Subjects, now: datetime) -> None:
    """Add what instances need, as it stands now."""
    rows, groups = [], []
    for number, made in wanted.items():
        for need in made.requirements:
            subject_id, reached = subjects[need.subject.key]
            named = {"instance_id": number, "edge": need.edge, "subject_id": subject_id, "bound": need.subject.bound}
            rows.append({**named, "met": reached >= need.subject.bound, "opens_at": need.opens_at})
        for group, standing in _groups_of(made, subjects):
            row = {name: getattr(group, name) for name in ("edge", "strength", "until_at", "waits_for_failed")}
            state = {"met": is_met(group, standing, now), "look_at": next_look(group, standing, now)}
            groups.append({"instance_id": number, **row, **state})
    for some in batches(rows, 5_000):
        insert_rows(connection, insert(schema.center_requirement), some)
    for some in batches(groups, 5_000):
        insert_rows(connection, insert(schema.center_group), some)


def has_all() -> ColumnElement[bool]:
    """Whether all that an instance needs is there `NOW`, whatever was counted.

    To build it takes milliseconds, so statements with it are built once.

    What fell and came back is not there either, until those that ran on what it was before are told: one that starts now is none of them.
    What was ready before is judged by the time at which it became ready.
    """
    lowest = select(func.coalesce(_SUBJECT.fell, _SUBJECT.reached)).where(_SUBJECT.id == _REQUIREMENT.subject_id)
    is_lower = lowest.correlate(schema.center_requirement).scalar_subquery() < _REQUIREMENT.bound
    lacks = and_(_REQUIREMENT.instance_id == _INSTANCE.id, _REQUIREMENT.opens_at.is_(None), is_lower)
    at = func.coalesce(_INSTANCE.ready_at, NOW)
    is_over = and_(GROUP.until_at <= at, or_(GROUP.waits_for_failed.is_(False), ~_lacks(at, _is_failed, nothing_yet=False)))
    waits = and_(GROUP.instance_id == _INSTANCE.id, _lacks(at, _is_missing, nothing_yet=True), or_(GROUP.until_at.is_(None), ~is_over))
    return and_(~each(select(_REQUIREMENT.edge).where(lacks)), ~each(select(GROUP.edge).where(waits)))


def each(query: Select[Any]) -> ColumnElement[bool]:
    """Whether an instance has a row of this query, asked for each instance by itself, by an index.

    Without OFFSET, PostgreSQL may read the whole table to compare it with all instances: while its statistics were old, the release of
    50,000 instances took 57 s more.
    """
    return exists(query.correlate(schema.center_instance).offset(0))


def _is_missing(requirement: Any, subject: Any) -> ColumnElement[bool]:
    return and_(subject.c.id == requirement.c.subject_id, func.coalesce(subject.c.fell, subject.c.reached) < requirement.c.bound)


def _is_failed(requirement: Any, subject: Any) -> ColumnElement[bool]:
    return and_(subject.c.id == requirement.c.subject_id, subject.c.reached == FAILED, requirement.c.bound == THERE)


def _lacks(at: Any, which: Callable[[Any, Any], ColumnElement[bool]], *, nothing_yet: bool) -> ColumnElement[bool]:
    """Whether the strength of a group cannot be met without requirements like these. `nothing_yet`: the answer before any time has come."""
    outer = (schema.center_group, schema.center_instance)
    one, other, newest, subject = _ONE, _OTHER, _NEWEST, _OF_ONE

    def of_group(rows: Any) -> ColumnElement[bool]:
        return and_(rows.c.instance_id == GROUP.instance_id, rows.c.edge == GROUP.edge)

    some = exists(select(one.c.edge).where(of_group(one), which(one, subject)).correlate(*outer))
    in_time = exists(
        select(one.c.edge).where(of_group(one), one.c.opens_at == other.c.opens_at, which(one, subject)).correlate(*outer, other)
    )
    each_time = ~exists(select(other.c.edge).where(of_group(other), ~in_time).correlate(*outer))
    last = select(func.max(newest.c.opens_at)).where(of_group(newest), newest.c.opens_at <= at).correlate(*outer).scalar_subquery()
    in_last = exists(select(one.c.edge).where(of_group(one), one.c.opens_at == last, which(one, subject)).correlate(*outer))
    return or_(
        and_(GROUP.strength == Strength.ALL, some),
        and_(GROUP.strength == Strength.ANY, each_time),
        and_(GROUP.strength == Strength.NEWEST, or_(in_last, last.is_(None)) if nothing_yet else in_last),
    )
