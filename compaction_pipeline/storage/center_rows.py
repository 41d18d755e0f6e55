"""Rows of the dependency center, as doors and the leader both write them: turns, instances, what these need, and how far things are.

Whoever writes them holds the lock of the center.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, case, func, insert, or_, select, update

from compaction_pipeline.core.dependencies.center.inbox import NOTHING
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import run_subject
from compaction_pipeline.core.dependencies.center.ports import Made, Turn
from compaction_pipeline.core.dependencies.center.project_rules import MARK
from compaction_pipeline.core.dependencies.center.subjects import named_in
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_groups import GROUP, Subjects, count_missing, insert_requirements, replace_requirements
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches, lock, upsert
from compaction_pipeline.storage.many_rows import insert_rows, update_rows

PROJECT, JOB, INSTANCE = schema.center_project.c, schema.center_job.c, schema.center_instance.c
SUBJECT, REQUIREMENT = schema.center_subject.c, schema.center_requirement.c
LOCK = "dependency center"
NEWEST = select(func.coalesce(func.max(PROJECT.version), 0))
"""A query for the version of the newest project."""


def instance_of(row: StoredRow) -> Instance:
    """The instance of a row of its table."""
    moments = (row.made_at, row.generation, row.state, row.missing, row.ready_at, row.claimed_at, row.delivered_at, row.ended_at)
    return Instance(row.id, row.job, row.biz, row.origin, row.part, *moments, row.changed_at, row.note)


def is_version(connection: Connection, version: int) -> bool:
    """Take the lock, and see whether projects are as they were."""
    lock(connection, LOCK)
    return bool(connection.execute(NEWEST).scalar() == version)


def miscounted() -> Select[tuple[int]]:
    """A query for how many waiting instances have another count of what is missing than their requirements and groups."""
    mine = (REQUIREMENT.instance_id == INSTANCE.id, REQUIREMENT.opens_at.is_(None), REQUIREMENT.met.is_(False))
    unmet = select(func.count()).where(*mine).scalar_subquery()
    groups = select(func.count()).where(GROUP.instance_id == INSTANCE.id, GROUP.met.is_(False)).scalar_subquery()
    return select(func.count(INSTANCE.id)).where(INSTANCE.state == InstanceState.WAITING, INSTANCE.missing != unmet + groups)


def make_instances(connection: Connection, made: Sequence[Made], now: datetime) -> int:
    """Make instances that do not exist, and count what they miss now. Return how many somebody starts. The caller holds the lock."""
    runs = {(one.job, one.biz, one.origin): one for one in made}
    if not runs:
        return 0
    subjects = _subjects(connection, {need.subject.key for one in runs.values() for need in one.requirements})
    values = {"part": "", "generation": 1, "state": InstanceState.WAITING, "made_at": now}
    rows = [
        {"job": one.job, "biz": one.biz, "origin": one.origin, "receiver": one.receiver, "missing": count_missing(one, subjects, now)}
        | values
        for one in runs.values()
    ]
    fresh = upsert(connection, schema.center_instance).on_conflict_do_nothing(index_elements=["job", "biz", "origin", "part"])
    inserted = insert_rows(connection, fresh.returning(INSTANCE.id, INSTANCE.job, INSTANCE.biz, INSTANCE.origin), rows).all()
    insert_requirements(connection, {row.id: runs[row.job, row.biz, row.origin] for row in inserted}, subjects, now)
    return sum(runs[row.job, row.biz, row.origin].receiver is not None for row in inserted)


def put_turns(connection: Connection, turns: Sequence[Turn], project: str | None = None) -> None:
    """Set the next turns of jobs. With a project, jobs that are new are added."""
    for some in batches(turns):
        if project is None:
            rows = [{"name": turn.job, "biz": turn.biz, "at": turn.at} for turn in some]
            update_rows(connection, schema.center_job, "name", rows)
        else:
            row = upsert(connection, schema.center_job)
            fresh = row.on_conflict_do_update(index_elements=["name"], set_={"biz": row.excluded.biz, "at": row.excluded.at})
            insert_rows(connection, fresh, [{"name": turn.job, "project": project, "biz": turn.biz, "at": turn.at} for turn in some])


def put_requirements(connection: Connection, wanted: Mapping[int, Made], now: datetime) -> None:
    """Replace what instances need, and count what is missing by what is known now. The caller holds the lock."""
    subjects = _subjects(connection, {need.subject.key for one in wanted.values() for need in one.requirements})
    replace_requirements(connection, wanted, subjects, now)
    set_missing(connection, {number: count_missing(one, subjects, now) for number, one in wanted.items()})


def put_reached(connection: Connection, reached: Mapping[str, int], fell: Mapping[str, int], now: datetime) -> None:
    """Note how far things are. `spread` tells instances, also what fell and came back: something ran on what it was before."""
    rows = [
        {"key": key, "reached": value, "fell": fell.get(key), "spread": False, "at": now, **named_columns(key)}
        for key, value in reached.items()
    ]
    for some in batches(rows):
        fresh = upsert(connection, schema.center_subject)
        new = fresh.excluded
        lowest = case((or_(new.fell.is_(None), SUBJECT.fell < new.fell), SUBJECT.fell), else_=new.fell)
        changed = {"reached": new.reached, "at": new.at, "spread": new.spread, "fell": lowest}
        is_news = or_(SUBJECT.reached != new.reached, SUBJECT.at.is_(None), new.fell.is_not(None))
        insert_rows(connection, fresh.on_conflict_do_update(index_elements=["key"], set_=changed, where=is_news), some)


def take_back_by(connection: Connection, fallen: Collection[str], now: datetime) -> None:
    """Nodes of projects that had succeeded with these are not there any more either, before anybody is told: nothing starts by them."""
    left, seen = sorted(fallen), set(fallen)
    while left:
        rows: list[StoredRow] = []
        for some in batches(left):
            lowest = func.coalesce(SUBJECT.fell, SUBJECT.reached)
            of_it = (REQUIREMENT.subject_id == SUBJECT.id, SUBJECT.key.in_(some), REQUIREMENT.met, lowest < REQUIREMENT.bound)
            lost = select(REQUIREMENT.instance_id).where(*of_it, REQUIREMENT.opens_at.is_(None))
            by_itself = (INSTANCE.state == InstanceState.SUCCEEDED, INSTANCE.claimed_at.is_(None), INSTANCE.job.contains(MARK))
            rows += connection.execute(select(INSTANCE.job, INSTANCE.biz, INSTANCE.origin).where(*by_itself, INSTANCE.id.in_(lost))).all()
        left = sorted({run_subject(row.job, row.biz, row.origin).key for row in rows} - seen)
        seen.update(left)
        put_reached(connection, dict.fromkeys(left, NOTHING), dict.fromkeys(left, NOTHING), now)


def set_missing(connection: Connection, missing: Mapping[int, int]) -> None:
    """Set what is missing of instances."""
    for count in set(missing.values()):
        for some in batches([number for number, one in missing.items() if one == count]):
            connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(missing=count))


def _subjects(connection: Connection, keys: set[str]) -> Subjects:
    """The id of each key, and how far it is. Those that nobody asked for yet are added."""
    found: dict[str, tuple[int, int]] = {}
    for some in batches(sorted(keys)):
        query = select(SUBJECT.key, SUBJECT.id, SUBJECT.reached).where(SUBJECT.key.in_(some))
        known = {row.key: (row.id, row.reached) for row in connection.execute(query)}
        fresh = [{"key": key, "reached": NOTHING, "spread": True, **named_columns(key)} for key in some if key not in known]
        if fresh:
            insert_rows(connection, insert(schema.center_subject), fresh)
            known = {row.key: (row.id, row.reached) for row in connection.execute(query)}
        found.update(known)
    return found


def named_columns(key: str) -> Mapping[str, Any]:
    """What a subject's row says of its key: the kind and the name that stand first in it."""
    kind, name = next(iter(named_in(key).items()))
    return {"kind": kind, "name": name, "reported": False}
