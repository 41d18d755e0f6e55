"""Saves a project: replaces its jobs and its rule, and lets instances wait anew where they need something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from compaction_pipeline.core.dependencies.center.cycles import Edge, cycles
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, DataJob
from compaction_pipeline.core.dependencies.center.lineage import Alert, Suggestion
from compaction_pipeline.core.dependencies.center.periods import Calendar
from compaction_pipeline.core.dependencies.center.ports import CenterStore, InstanceQuery, Made, Turn, WaitingAnew
from compaction_pipeline.core.dependencies.center.project_rules import ProjectRule, rule_keys, rule_problems
from compaction_pipeline.core.dependencies.center.projects import project_of, with_since
from compaction_pipeline.core.dependencies.center.subjects import Subject
from compaction_pipeline.core.dependencies.center.upstreams import JobRun, data_name
from compaction_pipeline.core.errors import ChangedMeanwhile, ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs
from compaction_pipeline.services.dependencies.lead_center import first_turn, made_of, nodes_of
from compaction_pipeline.services.dependencies.lineage import NO_LINEAGE, Lineage

_ALL = 10_000_000
MOST_AT_ONCE = 10_000
"""A save makes more instances at once only when somebody says that this is meant: a `since` may have the wrong year."""


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """What saving a project does: which jobs are new, changed and removed, and what the first instance of each new or changed job waits
    for (`previews`, by job, as texts). `at_once` counts for each job the instances that are made at once, because their triggers have
    passed. `suggestions` and `alerts` are what lineage says of its jobs."""

    project: str
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    previews: Mapping[str, tuple[str, ...]]
    suggestions: tuple[Suggestion, ...] = ()
    alerts: tuple[Alert, ...] = ()
    at_once: Mapping[str, int] = field(default_factory=dict)


class SaveProject:
    """One verb: save. `nodes_for` and `backfill_of` are asked by who makes instances, too."""

    def __init__(self, store: CenterStore, definitions: Definitions, clock: Clock) -> None:
        self._store = store
        self._definitions = definitions
        self._clock = clock

    def save(
        self,
        file: Mapping[str, Any],
        lineage: Lineage = NO_LINEAGE,
        *,
        dry_run: bool = False,
        many: bool = False,
        version: int | None = None,
    ) -> ProjectChange:
        """See `DependencyCenter.save_project`. `lineage` is what was found out of the jobs of the file. With `version`, no project may have
        changed since then: the file is made of the one that there was."""
        jobs = self._definitions.jobs()
        if version not in (None, jobs.version):
            raise ChangedMeanwhile("a project changed at the same time, so nothing was saved: do it again")
        name = file.get("project") if isinstance(file, Mapping) else None
        rule = jobs.rules.get(name) if isinstance(name, str) else None
        if rule is not None and file.get("after"):
            # A rule keeps the form that it has.
            file = {**rule_keys(rule), **file}
        others = {one.name: one for one in jobs.own.values() if one.project != name}
        before = {one.name: one for one in jobs.own.values() if one.project == name}
        now = self._clock()
        project = project_of(file, others, before, now)
        _refuse_orphans(others, {**others, **project.jobs})
        own, rules = {**others, **project.jobs}, {**jobs.rules, project.name: project.rule}
        _refuse_rules(own, rules, now)
        after = Jobs(jobs.version, own, rules)
        _refuse_cycles(after.by_name, now)
        turns = {turn.job: turn for turn in self._store.turns(project.name)}
        with_turns = [job for job in after.by_name.values() if job.project == project.name and not job.node]
        next_turns = [_turn(job, jobs.by_name.get(job.name), turns.get(job.name)) for job in with_turns]
        # What is due without this save is made in any case.
        at_once = {turn.job: _passed(after.by_name[turn.job], turn, now) for turn in next_turns if turn != turns.get(turn.job)}
        at_once = {name: count for name, count in at_once.items() if count}
        change = _change(project.name, jobs, after, now)
        change = replace(change, suggestions=lineage.suggestions, alerts=lineage.alerts, at_once=at_once)
        if dry_run:
            return change
        if not many:
            _refuse_many(at_once, after)
        waiting = self._waiting_anew([job.name for job in with_turns], jobs, after)
        saved = with_since(file, project)
        if not self._store.save_project(project.name, saved, jobs.version, next_turns, waiting, self._clock()):
            raise ChangedMeanwhile("a project, or an instance of this one, changed at the same time, so nothing was saved: save it again")
        self._definitions.note_saved(replace(after, version=jobs.version + 1))
        return change

    def _waiting_anew(self, names: Sequence[str], before: Jobs, after: Jobs) -> WaitingAnew:
        """What instances need after a change, by job: those of these jobs that nobody has claimed, those of other jobs that need something
        else, and those of nodes, also when they have succeeded. Nodes that are needed and are not there yet are made."""
        newest = max((one.id for one in self._store.instances(InstanceQuery(most=1))), default=0)
        changed = _changed(before, after)
        unclaimed = self._store.unclaimed(list(dict.fromkeys([*names, *changed])))
        _refuse_other_calendars(unclaimed, before.by_name, after.by_name)
        together = cache(self.backfill_of)

        def made(one: Instance) -> Made:
            if one.job not in after.by_name:
                # Nothing waits for a node that is gone.
                return Made(one.job, one.biz, one.origin, None, ())
            return made_of(after.by_name[one.job], one.biz, one.origin, after, one.made_at, together(one.origin))

        waiting = [made(one) for one in unclaimed]
        for name in changed:
            if name in after.by_name and after.by_name[name].node:
                ended = self._store.instances(InstanceQuery(job=name, state=InstanceState.SUCCEEDED, most=_ALL))
                waiting += [made(one) for one in ended if name not in before.by_name or _needs(one, before) != _needs(one, after)]
        fresh = [one for one in self.nodes_for(waiting, after) if not self._is_there(one)]
        # The store wants all that nobody has claimed of a job, or none.
        others = self._store.unclaimed(sorted({one.job for one in fresh} - {*names, *changed}))
        found: dict[str, list[Made]] = {name: [] for name in changed}
        for each in (*waiting, *fresh, *(made(one) for one in others)):
            found.setdefault(each.job, []).append(each)
        nodes = frozenset(name for name in found if name not in after.by_name or after.by_name[name].node)
        return WaitingAnew(found, newest, nodes)

    def _is_there(self, one: Made) -> bool:
        return bool(self._store.instances(InstanceQuery(job=one.job, biz=one.biz, origin=one.origin, most=1)))

    def nodes_for(self, made: Sequence[Made], jobs: Jobs) -> list[Made]:
        """The instances of nodes that these need and are not among them."""
        found = []
        for origin in sorted({one.origin for one in made}):
            some = [one for one in made if one.origin == origin]
            found += nodes_of(some, jobs, self._clock(), self.backfill_of(origin))
        known = {(one.job, one.biz, one.origin) for one in made}
        return [one for one in found if (one.job, one.biz, one.origin) not in known]

    def backfill_of(self, origin: str) -> frozenset[tuple[str, str]]:
        """The runs of a backfill, as jobs and business times."""
        if origin == SCHEDULED:
            return frozenset()
        return frozenset((one.job, one.biz) for one in self._store.instances(InstanceQuery(origin=origin, most=_ALL)))


def _turn(job: DataJob, before: DataJob | None, turn: Turn | None) -> Turn:
    """Where a job goes on after its definition changed: where it was, when its calendar is the same, or at its new first time."""
    first = first_turn(job)
    if turn is None or before is None or before.calendar != job.calendar or not job.has_instances:
        return first
    next_time = job.calendar.parse(turn.biz)
    if next_time <= job.since or job.since < before.since:
        return first
    return Turn(job.name, turn.biz, job.trigger.instant(job.calendar, next_time))


def _passed(job: DataJob, turn: Turn, now: datetime) -> int:
    """How many triggers of a job have passed from a turn on."""
    if turn.at is None or turn.at > now:
        return 0
    last = job.calendar.at(now)
    has_passed = job.trigger.instant(job.calendar, last) <= now
    return max(last.number - job.calendar.parse(turn.biz).number + has_passed, 1)


def _refuse_many(at_once: Mapping[str, int], after: Jobs) -> None:
    total = sum(at_once.values())
    if total <= MOST_AT_ONCE:
        return
    name = max(at_once, key=lambda one: at_once[one])
    job = after.by_name[name]
    raise ConfigError(
        f"{total:,} instances would be made at once, but a save makes at most {MOST_AT_ONCE:,}: {name!r} alone has {at_once[name]:,} since "
        f"{job.calendar.text(job.since)}; give a later 'since', or save with 'many' ('--many') when it is meant"
    )


def _change(project: str, before: Jobs, after: Jobs, now: datetime) -> ProjectChange:
    mine = [name for name, job in after.own.items() if job.project == project]
    had = {name for name, job in before.own.items() if job.project == project}
    changed = [name for name in mine if before.by_name.get(name) != after.by_name[name]]
    previews = {}
    for name in changed:
        job = after.by_name[name]
        made = made_of(job, job.calendar.text(job.since), SCHEDULED, after, now)
        strong = [str(one.subject) for one in made.requirements if one.opens_at is None]
        weak = [(group, [str(one.subject) for one in made.requirements if one.edge == group.edge]) for group in made.groups]
        previews[name] = (*strong, *(f"{', '.join(subjects)} ({group})" for group, subjects in weak))
    added = tuple(name for name in changed if name not in had)
    return ProjectChange(project, added, tuple(name for name in changed if name in had), tuple(sorted(had - set(mine))), previews)


def _changed(before: Jobs, after: Jobs) -> list[str]:
    """The jobs that need something else from now on, and nodes that are gone: by another definition, because an upstream begins at another
    time, or has another trigger or other parts, or because others make the data that they need: in a backfill they wait for these, too."""
    were = before.by_name
    remade = {data for data, *_ in _made(before) ^ _made(after)}
    upstreams = {name for name, job in after.by_name.items() if name in were and _to_others(job) != _to_others(were[name])}
    found = [name for name, job in were.items() if job.node and name not in after.by_name]
    for name, job in after.by_name.items():
        needed = [edge.upstream.job for edge in job.needs if isinstance(edge.upstream, JobRun)]
        data = {data_name(edge.upstream) for edge in job.needs if remade and not isinstance(edge.upstream, JobRun)}
        if were.get(name) != job or not upstreams.isdisjoint(needed) or not remade.isdisjoint(data):
            found.append(name)
    return found


def _made(jobs: Jobs) -> set[tuple[str, str, Calendar]]:
    """Who makes which data, by which calendar."""
    return {(data, job.name, job.calendar) for job in jobs.own.values() for data in job.produces}


def _needs(one: Instance, jobs: Jobs) -> frozenset[tuple[int, Subject]]:
    """What a node needs, with the numbers of its edges."""
    made = made_of(jobs.by_name[one.job], one.biz, one.origin, jobs, one.made_at)
    return frozenset((need.edge, need.subject) for need in made.requirements)


def _to_others(job: DataJob) -> tuple[Any, ...]:
    return job.since, job.trigger, job.parts


def _refuse_orphans(others: Mapping[str, DataJob], known: Mapping[str, DataJob]) -> None:
    """Refuse to remove, or to change the calendar of, what other projects wait for."""
    for job in others.values():
        for edge in job.needs:
            if not isinstance(edge.upstream, JobRun):
                continue
            found = known.get(edge.upstream.job)
            if found is None:
                raise ConfigError(f"the job {edge.upstream.job!r} would be gone, but {job.name!r} waits for it: take that need out first")
            if found.calendar != edge.calendar or (edge.upstream.part and edge.upstream.part not in found.parts):
                raise ConfigError(f"the job {found.name!r} would have another calendar or other parts, but {job.name!r} waits for it")


def _refuse_rules(own: Mapping[str, DataJob], rules: Mapping[str, ProjectRule], now: datetime) -> None:
    found = list(rule_problems(own, rules, now))
    if found:
        raise ConfigError("; ".join(found))


def _refuse_other_calendars(unclaimed: Sequence[Instance], before: Mapping[str, DataJob], known: Mapping[str, DataJob]) -> None:
    for one in unclaimed:
        if one.job in before and one.job in known and before[one.job].calendar != known[one.job].calendar:
            raise ConfigError(
                f"the job {one.job!r} would have another period or zone, but nobody has claimed its instance {one.biz} yet: take the job "
                f"out of the file, save it, and put the job in again"
            )


def _refuse_cycles(known: Mapping[str, DataJob], now: datetime) -> None:
    edges = [
        Edge(job.name, edge.upstream.job, edge.offsets) for job in known.values() for edge in job.needs if isinstance(edge.upstream, JobRun)
    ]
    found = cycles(edges, {name: job.calendar for name, job in known.items()}, now)
    if found:
        raise ConfigError("; ".join(one.text() for one in found))
