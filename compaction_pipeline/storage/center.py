"""The CenterStore: what doors ask for and write. `center_leader` has what only the leader does.

One lock serializes all that makes instances or changes what is known, so that no instance misses what changes while it is made. Claims
take rows of instances only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    tuple_,
    update,
)

from compaction_pipeline.core.dependencies.center.inbox import FAILED, NOTHING, Fact, RunId, SetAside
from compaction_pipeline.core.dependencies.center.instances import ENDED, Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import run_subject
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.dependencies.center.ports import InstanceQuery, Made, SavedProject, Turn, Wait, WaitingAnew
from compaction_pipeline.core.dependencies.center.strength import Group
from compaction_pipeline.core.dependencies.center.subjects import TABLE, THERE
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import time_text
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.center_facts import FACT, TEXT, fact_of, one_set_aside, set_aside, set_aside_of
from compaction_pipeline.storage.center_groups import (
    GROUP,
    group_of,
    has_all,
)
from compaction_pipeline.storage.center_rows import (
    INSTANCE,
    JOB,
    LOCK,
    NEWEST,
    PROJECT,
    REQUIREMENT,
    SUBJECT,
    instance_of,
    is_version,
    make_instances,
    named_columns,
    put_reached,
    put_requirements,
    put_turns,
    take_back_by,
)
from compaction_pipeline.storage.columns import Moment
from compaction_pipeline.storage.engine import batches, lock, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore

_ALERTS = "alerts of jobs"
_UNCLAIMED = (InstanceState.WAITING, InstanceState.READY)
_OPEN = (INSTANCE.receiver == bindparam("receiver"), INSTANCE.state == InstanceState.READY, INSTANCE.delivered_at.is_(None))
_MINE = select(INSTANCE.id).where(*_OPEN).limit(1)


class CenterDoors(SqlStore):
    """What every process may do."""

    def projects(self, after: int = 0) -> Sequence[SavedProject]:
        rows = self._rows(select(schema.center_project).where(PROJECT.version > after))
        return sorted((SavedProject(row.name, row.file, row.version) for row in rows), key=lambda one: one.name)

    def version(self) -> int:
        return int(self._values(NEWEST)[0])

    def turns(self, project: str) -> Sequence[Turn]:
        rows = self._rows(select(schema.center_job).where(JOB.project == project).order_by(JOB.name))
        return [Turn(row.name, row.biz, row.at) for row in rows]

    def unclaimed(self, jobs: Sequence[str]) -> Sequence[Instance]:
        found: list[Instance] = []
        for some in batches(jobs):
            open_ones = (INSTANCE.job.in_(some), INSTANCE.state.in_(_UNCLAIMED), INSTANCE.claimed_at.is_(None))
            found += [instance_of(row) for row in self._rows(select(schema.center_instance).where(*open_ones).order_by(INSTANCE.id))]
        return found

    def save_project(
        self, name: str, file: Mapping[str, Any], version: int, turns: Sequence[Turn], waiting: WaitingAnew, now: datetime
    ) -> bool:
        with writing(self._engine) as connection:
            if not is_version(connection, version) or _has_others(connection, turns, waiting):
                return False
            values = {"version": version + 1, "file": file}
            row = upsert(connection, schema.center_project).values(name=name, **values)
            connection.execute(row.on_conflict_do_update(index_elements=["name"], set_=values))
            had = set(connection.execute(select(JOB.name).where(JOB.project == name)).scalars())
            for some in batches(sorted(had - {turn.job for turn in turns})):
                unclaimed = and_(INSTANCE.job.in_(some), INSTANCE.claimed_at.is_(None), INSTANCE.state.not_in(ENDED))
                for column, table in ((REQUIREMENT.instance_id, schema.center_requirement), (GROUP.instance_id, schema.center_group)):
                    connection.execute(delete(table).where(column.in_(select(INSTANCE.id).where(unclaimed))))
                failed = {"state": InstanceState.FAILED, **dict.fromkeys(("ready_at", "claimed_at", "delivered_at", "ended_at"), now)}
                connection.execute(update(schema.center_instance).where(unclaimed, INSTANCE.generation > 1).values(failed))
                _forget_quality(connection, unclaimed)
                connection.execute(delete(schema.center_instance).where(unclaimed))
                connection.execute(delete(schema.center_job).where(JOB.name.in_(some)))
            put_turns(connection, turns, name)
            for made in batches([one for some in waiting.by_job.values() for one in some]):
                _wait_anew(connection, made, waiting.nodes, now)
                make_instances(connection, made, now)
            return True

    def post(self, facts: Sequence[Fact], version: int | None = None, *, missed_by: str | None = None) -> bool:
        with writing(self._engine) as connection:
            if version is not None and connection.execute(NEWEST).scalar() != version:
                return False
            for some in batches(facts):
                connection.execute(insert(schema.center_fact), [{"value": fact} for fact in some])
            if missed_by is not None:
                _count_missed(connection, missed_by, facts)
            return True

    def generations(self, told: Mapping[RunId, int]) -> Mapping[RunId, int]:
        found: dict[RunId, int] = {}
        same = tuple_(INSTANCE.job, INSTANCE.biz, INSTANCE.origin, INSTANCE.part)
        for some in batches(list(told)):
            wanted = same.in_([(run.job, run.biz, run.origin, run.part) for run in some])
            for row in self._rows(select(schema.center_instance).where(wanted)):
                found[RunId(row.job, row.biz, row.origin, row.part)] = row.generation
        asked = {run for run, generation in told.items() if run not in found or generation > found[run] + 1}
        if not asked:
            # The inbox may hold thousands of facts, and each of them would be parsed.
            return found
        for fact in map(fact_of, self._values(select(TEXT).where(FACT.problem.is_(None)).order_by(FACT.id))):
            if fact is not None and fact.run is not None and fact.run in asked and fact.report is not None:
                highest = found.get(fact.run, 1)
                if highest < (fact.report.generation or 1) <= highest + 1:
                    found[fact.run] = highest + 1
        return found

    def problems(self) -> Mapping[str, str]:
        return {row.key: row.problem for row in self._rows(select(schema.center_problem))}

    def note_problem(self, name: str, problem: str | None) -> None:
        if problem is None:
            self._write(delete(schema.center_problem).where(schema.center_problem.c.key == name))
            return
        with writing(self._engine) as connection:
            row = upsert(connection, schema.center_problem).values(key=name, problem=problem)
            connection.execute(row.on_conflict_do_update(index_elements=["key"], set_={"problem": row.excluded.problem}))

    def last_reports(self, jobs: Sequence[str]) -> Mapping[str, datetime]:
        found: dict[str, datetime] = {}
        last = func.max(func.coalesce(INSTANCE.ended_at, INSTANCE.made_at), type_=Moment).label("last")
        for some in batches(jobs):
            rows = self._rows(select(INSTANCE.job, last).where(INSTANCE.job.in_(some)).group_by(INSTANCE.job))
            found.update((row.job, row.last) for row in rows)
        return found

    def note_alerts(self, alerts: Sequence[Alert]) -> None:
        with writing(self._engine) as connection:
            lock(connection, _ALERTS)
            connection.execute(delete(schema.center_alert))
            rows = [{"number": number, "job": one.job, "owner": one.owner, "text": one.text} for number, one in enumerate(alerts)]
            for some in batches(rows):
                connection.execute(insert(schema.center_alert), some)

    def set_aside(self, most: int) -> Sequence[SetAside]:
        return [set_aside_of(row.id, row.text, row.problem) for row in self._rows(set_aside(most))]

    def try_again(self, number: int) -> SetAside:
        with writing(self._engine) as connection:
            lock(connection, LOCK)
            one = one_set_aside(connection, number)
            fact = fact_of(one.text)
            if fact is None:
                raise ConfigError(
                    f"fact {number} cannot be read, so it cannot be applied: remove it, or install the release of compaction-pipeline that "
                    "wrote it and try again"
                )
            changed = connection.execute(select(SUBJECT.at).where(SUBJECT.key.in_(fact.keys), SUBJECT.at > fact.at)).scalar()
            if changed is not None:
                raise ConfigError(
                    f"fact {number} is of {time_text(fact.at)} UTC, but {fact.key} has changed since then, at {time_text(changed)} UTC: "
                    "remove it, and report anew what is so now"
                )
            connection.execute(update(schema.center_fact).where(FACT.id == number).values(problem=None))
            return one

    def remove_fact(self, number: int) -> SetAside:
        with writing(self._engine) as connection:
            one = one_set_aside(connection, number)
            connection.execute(delete(schema.center_fact).where(FACT.id == number))
            return one

    def claim(self, receiver: str, most: int, now: datetime) -> Sequence[Instance]:
        # Most claims find nothing. A read holds up no other process.
        if self._first(_MINE, receiver=receiver) is None:
            return ()
        with writing(self._engine) as connection:
            rows = connection.execute(_claimable(), {"receiver": receiver, "now": now, "most": most}).all()
            fresh = [row.id for row in rows if row.claimed_at is None]
            for some in batches(fresh):
                connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(some)).values(claimed_at=now))
            return [instance_of(row) if row.claimed_at else replace(instance_of(row), claimed_at=now) for row in rows]

    def note_delivered(self, receiver: str, delivered: Sequence[tuple[int, int]], now: datetime) -> int:
        open_ones = (INSTANCE.receiver == receiver, INSTANCE.claimed_at.is_not(None), INSTANCE.delivered_at.is_(None))
        count = 0
        with writing(self._engine) as connection:
            for some in batches(sorted(delivered)):
                same = tuple_(INSTANCE.id, INSTANCE.generation).in_(some)
                # By id, as all that change several instances.
                query = select(INSTANCE.id).where(same, *open_ones).order_by(INSTANCE.id).with_for_update()
                numbers = connection.execute(query).scalars().all()
                connection.execute(update(schema.center_instance).where(INSTANCE.id.in_(numbers)).values(delivered_at=now))
                count += len(numbers)
        return count

    def instances(self, query: InstanceQuery) -> Sequence[Instance]:
        wanted = {"job": query.job, "biz": query.biz, "origin": query.origin, "state": query.state, "receiver": query.receiver}
        rows = select(schema.center_instance).where(*(INSTANCE[name] == value for name, value in wanted.items() if value is not None))
        order = INSTANCE.id if query.oldest_first else INSTANCE.id.desc()
        return [instance_of(row) for row in self._rows(rows.order_by(order).limit(query.most))]

    def waits(self, instance_id: int) -> Sequence[Wait]:
        joined = schema.center_requirement.join(schema.center_subject, SUBJECT.id == REQUIREMENT.subject_id)
        columns = (REQUIREMENT.edge, REQUIREMENT.bound, REQUIREMENT.met, SUBJECT.key, SUBJECT.reached, SUBJECT.at, REQUIREMENT.opens_at)
        rows = self._rows(select(*columns).select_from(joined).where(REQUIREMENT.instance_id == instance_id))
        waits = [Wait(row.edge, row.key, row.bound, row.met, row.reached, row.at, row.opens_at) for row in rows]
        return sorted(waits, key=lambda one: (one.edge, one.key, one.bound))

    def groups(self, instance_id: int) -> Sequence[tuple[Group, bool]]:
        rows = self._rows(select(schema.center_group).where(GROUP.instance_id == instance_id).order_by(GROUP.edge))
        return [(group_of(row), row.met) for row in rows]

    def reached(self, keys: Sequence[str]) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for some in batches(keys):
            rows = self._rows(select(SUBJECT.key, SUBJECT.reached).where(SUBJECT.key.in_(some), SUBJECT.at.is_not(None)))
            found.update((row.key, row.reached) for row in rows)
        return found

    def there(self, kind: str, name: str, source: str) -> Sequence[str]:
        number = schema.center_number.c
        told = exists().where(number.key == SUBJECT.key, number.source == source)
        wanted = (SUBJECT.kind == kind, SUBJECT.name == name, SUBJECT.reached >= THERE, told)
        return self._values(select(SUBJECT.key).where(*wanted).order_by(SUBJECT.id))

    def awaited(self, kind: str, ended_after: datetime, most: int, names: Collection[str] | None = None) -> Sequence[str]:
        is_open = or_(INSTANCE.state.in_(_UNCLAIMED), INSTANCE.ended_at > ended_after)
        of_subject = (REQUIREMENT.subject_id == SUBJECT.id, REQUIREMENT.instance_id == INSTANCE.id)
        waits = exists().where(*of_subject, INSTANCE.claimed_at.is_(None), is_open)
        wanted = (SUBJECT.kind == kind, waits, *(() if names is None else (SUBJECT.name.in_(names),)))
        return self._values(select(SUBJECT.key).where(*wanted).order_by(SUBJECT.name, SUBJECT.id).limit(most))

    def take_reported(self) -> frozenset[str]:
        reported = select(SUBJECT.name).where(SUBJECT.kind == TABLE, SUBJECT.reported).distinct()
        names = frozenset(self._values(reported))
        for some in batches(sorted(names)):
            # What is reported from here on is noted anew.
            self._write(update(schema.center_subject).where(SUBJECT.kind == TABLE, SUBJECT.name.in_(some)).values(reported=False))
        return names

    def backfill(self, version: int, made: Sequence[Made], now: datetime) -> int | None:
        with writing(self._engine) as connection:
            if not is_version(connection, version):
                return None
            return sum(make_instances(connection, some, now) for some in batches(made))

    def run_again(self, version: int, before: Instance, made: Made, now: datetime) -> bool:
        with writing(self._engine) as connection:
            if not is_version(connection, version):
                return False
            same = (INSTANCE.id == before.id, INSTANCE.generation == before.generation, INSTANCE.state == before.state)
            unset = dict.fromkeys(("ready_at", "claimed_at", "delivered_at", "ended_at", "changed_at", "note"))
            values = {"generation": before.generation + 1, "state": InstanceState.WAITING, "receiver": made.receiver, **unset}
            if connection.execute(update(schema.center_instance).where(*same).values(values)).rowcount != 1:
                return False
            put_requirements(connection, {before.id: made}, now)
            # What it made is made anew. A run that failed has failed until it has succeeded.
            key = run_subject(before.job, before.biz, before.origin).key
            reached = connection.execute(select(SUBJECT.reached).where(SUBJECT.key == key)).scalar()
            put_reached(connection, {key: FAILED if reached == FAILED else NOTHING}, {key: NOTHING}, now)
            take_back_by(connection, [key], now)
            return True

    def expire(self, before: datetime) -> int:
        with writing(self._engine) as connection:
            lock(connection, LOCK)
            old = and_(INSTANCE.state.in_(ENDED), INSTANCE.made_at < before)
            gone = connection.execute(delete(schema.center_instance).where(old)).rowcount
            waited = exists().where(REQUIREMENT.subject_id == SUBJECT.id)
            connection.execute(delete(schema.center_subject).where(or_(SUBJECT.at < before, SUBJECT.at.is_(None)), ~waited))
            is_known = exists().where(SUBJECT.key == schema.center_number.c.key)
            connection.execute(delete(schema.center_number).where(~is_known))
            connection.execute(delete(schema.center_missed).where(schema.center_missed.c.hour < before))
            return gone


@cache
def _claimable() -> Select[Any]:
    # Only what is ready has been READY; what was taken back since then waits for the leader to say so.
    ready = (*_OPEN, or_(INSTANCE.claimed_at.is_not(None), has_all()))
    # What its receiver cannot start comes again each time, and keeps nothing new from its turn.
    order = (INSTANCE.claimed_at.is_not(None), INSTANCE.ready_at, INSTANCE.id)
    query = select(schema.center_instance).where(*ready).order_by(*order).limit(bindparam("most", type_=Integer()))
    return query.with_for_update(skip_locked=True)


def _forget_quality(connection: Connection, which: ColumnElement[bool]) -> None:
    """Forget what was told of the quality of instances that are removed. One that is made anew is judged anew."""
    columns = (INSTANCE.job, INSTANCE.biz, INSTANCE.origin, INSTANCE.part)
    keys = [RunId(*row).quality_key for row in connection.execute(select(*columns).where(which))]
    for some in batches(keys):
        connection.execute(delete(schema.center_subject).where(SUBJECT.key.in_(some)))


def _count_missed(connection: Connection, detector: str, facts: Sequence[Fact]) -> None:
    counts = Counter((fact.at.replace(minute=0, second=0, microsecond=0), named_columns(fact.key)["name"]) for fact in facts)
    for (hour, name), events in sorted(counts.items()):
        row = upsert(connection, schema.center_missed).values(hour=hour, detector=detector, name=name, events=events)
        more = {"events": schema.center_missed.c.events + row.excluded.events}
        connection.execute(row.on_conflict_do_update(index_elements=["hour", "detector", "name"], set_=more))


def _has_others(connection: Connection, turns: Sequence[Turn], waiting: WaitingAnew) -> bool:
    """Whether an unclaimed instance was made, or began to wait, since what these wait for was found out."""
    runs = {(one.job, one.biz, one.origin) for some in waiting.by_job.values() for one in some}
    for some in batches(sorted({turn.job for turn in turns} | set(waiting.by_job))):
        # A node that was made meanwhile may have succeeded already, by what it needed before.
        is_open = or_(INSTANCE.state.in_(_UNCLAIMED), INSTANCE.id > waiting.newest)
        unclaimed = (INSTANCE.job.in_(some), INSTANCE.claimed_at.is_(None), is_open)
        found = connection.execute(select(INSTANCE.job, INSTANCE.biz, INSTANCE.origin).where(*unclaimed))
        if any((row.job, row.biz, row.origin) not in runs for row in found):
            return True
    return False


def _wait_anew(connection: Connection, made: Sequence[Made], nodes: frozenset[str], now: datetime) -> None:
    runs = {(one.job, one.biz, one.origin): one for one in made}
    jobs = sorted({one.job for one in made})
    # Nodes that have succeeded by themselves, too. What else succeeded since it was looked at has begun and ended by its former definition.
    waiting = (INSTANCE.job.in_(jobs), INSTANCE.claimed_at.is_(None), INSTANCE.state != InstanceState.FAILED)
    columns = (INSTANCE.id, INSTANCE.job, INSTANCE.biz, INSTANCE.origin, INSTANCE.state)
    # A receiver may claim one of them now. It waits, or it has it already.
    rows = connection.execute(select(*columns).where(*waiting).with_for_update()).all()
    rows = [row for row in rows if (row.job, row.biz, row.origin) in runs and (row.job in nodes or row.state in _UNCLAIMED)]
    found = {row.id: runs[row.job, row.biz, row.origin] for row in rows}
    ended = [run_subject(row.job, row.biz, row.origin).key for row in rows if row.state is InstanceState.SUCCEEDED]
    put_reached(connection, dict.fromkeys(ended, NOTHING), {}, now)
    take_back_by(connection, ended, now)
    put_requirements(connection, found, now)
    for number, one in found.items():
        # What was ready is looked at anew by what it needs now.
        values = {"state": InstanceState.WAITING, "ready_at": None, "ended_at": None, "note": None, "receiver": one.receiver}
        connection.execute(update(schema.center_instance).where(INSTANCE.id == number).values(values))
