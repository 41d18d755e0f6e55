"""Reads which tables the jobs of a project read and write from their SQL, and says what they should wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from compaction_pipeline.core.dependencies.center.jobs import DataJob
from compaction_pipeline.core.dependencies.center.lineage import (
    UNKNOWN_SQL,
    Alert,
    LineageMode,
    Suggestion,
    added_to,
    suggestions,
    unfounded,
    without_lineage,
)
from compaction_pipeline.core.dependencies.center.ports import CenterStore, SqlReader, SqlRules
from compaction_pipeline.core.dependencies.center.projects import Project, mode_of, project_of
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
    """The verbs are drafted, lineage and tell."""

    def __init__(self, store: CenterStore, definitions: Definitions, catalogs: CatalogStore, read_sql: SqlReader, clock: Clock) -> None:
        self._store = store
        self._definitions = definitions
        self._catalogs = catalogs
        self._read_sql = read_sql
        self._clock = clock

    def drafted(self, given: Mapping[str, Any]) -> Drafted:
        """Return the file of a project with the tables of its SQL in place of the SQL, and with the needs that lineage adds.

        What a job says by hand in `reads` or `produces` counts in place of what its SQL says. Raises ConfigError with all that is wrong,
        with the SQL and with the rest of the file.
        """
        problems: list[str] = []
        file, alerts = self._with_tables(without_lineage(given), problems)
        if problems:
            raise ConfigError("; ".join([*problems, *self._other_problems(file)]))
        jobs = file.get("jobs")
        if not isinstance(jobs, list) or not any(_keys(job).get("reads") for job in jobs):
            return Drafted(file, Lineage((), tuple(alerts)))
        now = self._clock()
        project, others = self._project(file, now)
        of_all = {**others, **project.jobs}
        found = suggestions(project.jobs.values(), of_all, now)
        if mode_of(file) is LineageMode.AUTOMATIC:
            file, found = added_to(file, found)
        return Drafted(file, Lineage(tuple(found), (*alerts, *unfounded(project.jobs.values(), of_all))))

    def _project(self, file: Mapping[str, Any], now: datetime) -> tuple[Project, Mapping[str, DataJob]]:
        """The project of a file, and the jobs of all others."""
        known = self._definitions.jobs().own
        others = {name: job for name, job in known.items() if job.project != file.get("project")}
        before = {name: job for name, job in known.items() if name not in others}
        return project_of(file, others, before, now), others

    def _other_problems(self, file: Mapping[str, Any]) -> Iterator[str]:
        try:
            self._project(file, self._clock())
        except ConfigError as error:
            yield str(error)

    def _with_tables(self, file: Mapping[str, Any], problems: list[str]) -> tuple[Mapping[str, Any], list[Alert]]:
        """The file with tables in place of SQL, and what is to be said of its SQL. What is wrong with it is added to `problems`."""
        jobs = file.get("jobs")
        written = [job for job in jobs if isinstance(job, Mapping) and SQL in job] if isinstance(jobs, list) else []
        if not written:
            return {key: value for key, value in file.items() if key != SQL}, list(_not_understood(file))
        if len(written) > MOST_JOBS_WITH_SQL:
            raise ConfigError(
                f"the file has SQL for {len(written)} jobs but may have it for {MOST_JOBS_WITH_SQL}: save it as several projects, or name "
                "the tables of some jobs in 'reads' and 'produces'"
            )
        rules = _rules(file.get(SQL, {}), frozenset(entry.name for entry in self._catalogs.entries()), problems)
        known = [self._of_sql(job, rules, problems) if SQL in _keys(job) else job for job in file["jobs"]]
        file = {**{key: value for key, value in file.items() if key != SQL}, "jobs": known}
        return file, list(_not_understood(file))

    def lineage(self, project: str | None = None) -> Lineage:
        """Return what the jobs of a project, or of all, should wait for and do not, waits that have no reason in what is read, and
        virtual jobs of which nobody reported a run for twice their period. Raises NotFoundError."""
        known, jobs = self._known(project)
        return Lineage(tuple(suggestions(jobs, known, self._clock())), tuple(self._alerts(project, known, jobs)))

    def tell(self) -> None:
        """Keep the alerts of all jobs where checks and metrics find them."""
        self._store.note_alerts([*self._alerts(None, *self._known(None))])

    def _known(self, project: str | None) -> tuple[Mapping[str, DataJob], Sequence[DataJob]]:
        """All jobs, and those of a project, by name."""
        known = self._definitions.jobs().own
        jobs = [job for job in known.values() if project is None or job.project == project]
        if project is not None and not jobs:
            raise NotFoundError(f"there is no project {project!r}: 'compaction-pipeline dependencies jobs' lists jobs and projects")
        return known, sorted(jobs, key=lambda job: job.name)

    def _alerts(self, project: str | None, known: Mapping[str, DataJob], jobs: Sequence[DataJob]) -> Iterator[Alert]:
        files = [one.file for one in self._store.projects() if project in (None, one.name)]
        yield from sorted((alert for file in files for alert in _not_understood(file)), key=lambda alert: alert.job)
        yield from unfounded(jobs, known)
        yield from self._silent(jobs, self._clock())

    def _of_sql(self, job: Mapping[str, Any], rules: SqlRules | None, problems: list[str]) -> Mapping[str, Any]:
        by_hand = {key: value for key, value in job.items() if key not in (SQL, UNKNOWN_SQL)}
        name, sql = job.get("name", "?"), job[SQL]
        if not isinstance(sql, str):
            problems.append(f"job {name}: 'sql' is {sql!r} but must be a text of statements")
            return by_hand
        if rules is None:
            return by_hand
        try:
            found = self._read_sql(sql, rules)
        except ConfigError as error:
            # What is wrong with all SQL, such as its dialect, is said once.
            if not any(one.endswith(f": {error}") for one in problems):
                problems.append(f"job {name}: {error}")
            return by_hand
        unknown = {UNKNOWN_SQL: list(found.unknown)} if found.unknown else {}
        return {"reads": list(found.reads), "produces": list(found.writes), **by_hand, **unknown}

    def _silent(self, jobs: Sequence[DataJob], now: datetime) -> Iterator[Alert]:
        reported = [job for job in jobs if job.virtual and not job.needs and not job.node]
        known = self._store.last_reports([job.name for job in reported])
        for job in reported:
            calendar = job.calendar
            last = known.get(job.name, calendar.end(job.since))
            current = calendar.at(now)
            if now - last > 2 * (calendar.end(current) - calendar.start(current)):
                what = f"its last report is of {last:%Y-%m-%d %H:%M} UTC" if job.name in known else "no run was ever reported"
                yield Alert(job.name, job.owner, f"{what}, though its period is a {calendar.period.value}: who makes it should report it")


def _keys(job: Any) -> Mapping[str, Any]:
    return job if isinstance(job, Mapping) else {}


def _not_understood(file: Mapping[str, Any]) -> Iterator[Alert]:
    """What of the SQL of a project was not understood when it was saved."""
    jobs = file.get("jobs")
    # Whoever reads the rest of the file says what is wrong with it.
    for job in jobs if isinstance(jobs, list) else ():
        unknown = _keys(job).get(UNKNOWN_SQL)
        for one in unknown if isinstance(unknown, list) else ():
            yield Alert(str(job.get("name", "?")), str(job.get("owner", file.get("owner", ""))), f"its SQL is not understood: {one}")


def _rules(given: Any, registered: frozenset[str], problems: list[str]) -> SqlRules | None:
    """How the SQL of a project is read; None when something is wrong, which is added to `problems`."""
    if not isinstance(given, Mapping):
        problems.append(f"'sql' of the project is {given!r} but must be a mapping of {', '.join(_RULES)}")
        return None
    found = [f"'sql' of the project has {key!r}, which is unknown; there are {', '.join(_RULES)}" for key in given if key not in _RULES]
    found += [
        f"{key!r} in 'sql' of the project is {given[key]!r} but must be a text"
        for key in _RULES[:3]
        if not isinstance(given.get(key, ""), str)
    ]
    catalogs = given.get("catalogs", [])
    if not isinstance(catalogs, list) or not all(isinstance(one, str) for one in catalogs):
        found.append(f"'catalogs' in 'sql' of the project is {catalogs!r} but must be a list of texts")
    if found:
        problems += found
        return None
    catalog = given.get("catalog", "")
    names = registered | set(catalogs) | ({catalog} if catalog else set())
    return SqlRules(given.get("dialect", "spark"), catalog, given.get("namespace", ""), frozenset(names))
