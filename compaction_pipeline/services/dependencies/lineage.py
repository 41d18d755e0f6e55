"""Reads which tables the jobs of a project read and write from their SQL, and says what they should wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from compaction_pipeline.core.dependencies.center.jobs import DataJob
from compaction_pipeline.core.dependencies.center.lineage import (
    Alert,
    LineageMode,
    Suggestion,
    added_to,
    suggestions,
    unfounded,
    without_lineage,
)
from compaction_pipeline.core.dependencies.center.ports import CenterStore, InstanceQuery, SqlReader, SqlRules
from compaction_pipeline.core.dependencies.center.projects import mode_of, project_of
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.services.dependencies.definitions import Definitions

SQL = "sql"
_RULES = ("dialect", "catalog", "namespace", "catalogs")
MOST_JOBS_WITH_SQL = 2_000


@dataclass(frozen=True, slots=True)
class Lineage:
    """What jobs should wait for by what they read, and what their owners should look at."""

    suggestions: tuple[Suggestion, ...]
    alerts: tuple[Alert, ...]


NO_LINEAGE = Lineage((), ())


@dataclass(frozen=True, slots=True)
class Drafted:
    """The file of a project as it is to be saved, and what lineage says of it."""

    file: Mapping[str, Any]
    lineage: Lineage


def as_written(file: Mapping[str, Any]) -> Drafted:
    """The file of a project without a look at lineage."""
    return Drafted(file, NO_LINEAGE)


class ReadLineage:
    """The verbs are drafted and lineage."""

    def __init__(self, store: CenterStore, definitions: Definitions, catalogs: CatalogStore, read_sql: SqlReader, clock: Clock) -> None:
        self._store = store
        self._definitions = definitions
        self._catalogs = catalogs
        self._read_sql = read_sql
        self._clock = clock

    def drafted(self, given: Mapping[str, Any]) -> Drafted:
        """Return the file of a project with the tables of its SQL in place of the SQL, and with the needs that lineage adds.

        What a job says by hand in `reads` or `produces` counts in place of what its SQL says. Raises ConfigError.
        """
        file, alerts = self._with_tables(without_lineage(given))
        jobs = file.get("jobs")
        if not isinstance(jobs, list) or not any(_keys(job).get("reads") for job in jobs):
            return Drafted(file, Lineage((), tuple(alerts)))
        now, known = self._clock(), self._definitions.jobs().own
        others = {name: job for name, job in known.items() if job.project != file.get("project")}
        before = {name: job for name, job in known.items() if name not in others}
        project = project_of(file, others, before, now)
        of_all = {**others, **project.jobs}
        found = suggestions(project.jobs.values(), of_all, now)
        if mode_of(file) is LineageMode.AUTOMATIC:
            file, found = added_to(file, found)
        return Drafted(file, Lineage(tuple(found), (*alerts, *unfounded(project.jobs.values(), of_all))))

    def _with_tables(self, file: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Alert]]:
        jobs = file.get("jobs")
        written = [job for job in jobs if isinstance(job, Mapping) and SQL in job] if isinstance(jobs, list) else []
        if not written:
            return {key: value for key, value in file.items() if key != SQL}, []
        if len(written) > MOST_JOBS_WITH_SQL:
            raise ConfigError(
                f"the file has SQL for {len(written)} jobs but may have it for {MOST_JOBS_WITH_SQL}: save it as several projects, or name "
                "the tables of some jobs in 'reads' and 'produces'"
            )
        rules = _rules(file.get(SQL, {}), frozenset(entry.name for entry in self._catalogs.entries()))
        alerts: list[Alert] = []
        known = [self._of_sql(job, rules, str(file.get("owner", "")), alerts) if SQL in _keys(job) else job for job in file["jobs"]]
        return {**{key: value for key, value in file.items() if key != SQL}, "jobs": known}, alerts

    def lineage(self, project: str | None = None) -> Lineage:
        """Return what the jobs of a project, or of all, should wait for and do not, waits that have no reason in what is read, and
        virtual jobs of which nobody reported a run for twice their period. Raises NotFoundError."""
        known = self._definitions.jobs().own
        jobs = [job for job in known.values() if project is None or job.project == project]
        if project is not None and not jobs:
            raise NotFoundError(f"there is no project {project!r}: 'compaction-pipeline dependencies jobs' lists jobs and projects")
        jobs.sort(key=lambda job: job.name)
        now = self._clock()
        return Lineage(tuple(suggestions(jobs, known, now)), (*unfounded(jobs, known), *self._silent(jobs, now)))

    def _of_sql(self, job: Mapping[str, Any], rules: SqlRules, owner: str, alerts: list[Alert]) -> Mapping[str, Any]:
        name, sql = job.get("name", "?"), job[SQL]
        if not isinstance(sql, str):
            raise ConfigError(f"job {name}: 'sql' is {sql!r} but must be a text of statements")
        try:
            found = self._read_sql(sql, rules)
        except ConfigError as error:
            raise ConfigError(f"job {name}: {error}") from None
        alerts += [Alert(str(name), str(job.get("owner", owner)), f"its SQL is not understood: {one}") for one in found.unknown]
        by_hand = {key: value for key, value in job.items() if key != SQL}
        return {"reads": list(found.reads), "produces": list(found.writes), **by_hand}

    def _silent(self, jobs: Sequence[DataJob], now: datetime) -> Iterator[Alert]:
        for job in jobs:
            if not job.virtual or job.needs or job.node:
                continue
            calendar = job.calendar
            newest = next(iter(self._store.instances(InstanceQuery(job=job.name, most=1))), None)
            last = calendar.end(job.since) if newest is None else newest.ended_at or newest.made_at
            current = calendar.at(now)
            if now - last > 2 * (calendar.end(current) - calendar.start(current)):
                what = "no run was ever reported" if newest is None else f"its last report is of {last:%Y-%m-%d %H:%M} UTC"
                yield Alert(job.name, job.owner, f"{what}, though its period is a {calendar.period.value}: who makes it should report it")


def _keys(job: Any) -> Mapping[str, Any]:
    return job if isinstance(job, Mapping) else {}


def _rules(given: Any, registered: frozenset[str]) -> SqlRules:
    """How the SQL of a project is read. Raises ConfigError."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"'sql' of the project is {given!r} but must be a mapping of {', '.join(_RULES)}")
    unknown = [key for key in given if key not in _RULES]
    if unknown:
        raise ConfigError(f"'sql' of the project has {unknown[0]!r}, which is unknown; there are {', '.join(_RULES)}")
    catalogs = given.get("catalogs", [])
    if not isinstance(catalogs, list) or not all(isinstance(one, str) for one in [*catalogs, *(given.get(key, "") for key in _RULES[:3])]):
        raise ConfigError("'sql' of the project must have texts, and in 'catalogs' a list of them")
    catalog = given.get("catalog", "")
    names = registered | set(catalogs) | ({catalog} if catalog else set())
    return SqlRules(given.get("dialect", "spark"), catalog, given.get("namespace", ""), frozenset(names))
