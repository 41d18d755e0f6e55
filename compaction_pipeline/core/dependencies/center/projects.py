"""Reads the definition of a project: its jobs, and what each waits for. A file is one project, and is the whole of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, TypeVar

from compaction_pipeline.core.dependencies.center import project_rules
from compaction_pipeline.core.dependencies.center.jobs import DataJob, Dependency
from compaction_pipeline.core.dependencies.center.lineage import FROM_LINEAGE, UNKNOWN_SQL, LineageMode
from compaction_pipeline.core.dependencies.center.offset_rules import check
from compaction_pipeline.core.dependencies.center.offsets import Offsets
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period
from compaction_pipeline.core.dependencies.center.strength import RULE_KEYS, Until, rule_of
from compaction_pipeline.core.dependencies.center.subjects import ASSET, JOB, QUALITY, TABLE, WATERMARK, check_text
from compaction_pipeline.core.dependencies.center.triggers import Trigger, time_of_trigger
from compaction_pipeline.core.dependencies.center.upstreams import DataWindow, JobRun, TableWatermark, Upstream, table_partition
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.names import plain_name
from compaction_pipeline.core.tables.table import TableIdentifier

_PROJECT_KEYS = ("project", "owner", "zone", "receiver", "dependencies", "jobs", *project_rules.RULE_KEYS)
_JOB_KEYS = (
    "name",
    "owner",
    "period",
    "zone",
    "trigger",
    "since",
    "receiver",
    "virtual",
    "parts",
    "made-by",
    "needs",
    "produces",
    "reads",
    "promise",
    QUALITY,
    UNKNOWN_SQL,
)
_NEED_KEYS = (JOB, TABLE, ASSET, "part", "partition", WATERMARK, "period", "zone", "times", FROM_LINEAGE, *RULE_KEYS)
MOST_JOBS = 100_000

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True, slots=True)
class Project:
    """A project as its file says. `jobs` are by their names; the edges that stand for its `rule` are not among their needs."""

    name: str
    jobs: Mapping[str, DataJob]
    rule: project_rules.ProjectRule


@dataclass(frozen=True, slots=True)
class _Draft:
    """A job whose needs are not read yet: their calendars are those of other jobs."""

    job: DataJob
    needs: Sequence[Any]
    where: str


class _Problems:
    """All that is wrong with a file, so that one answer has it all."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def read(self, where: str, read: Callable[[], T], otherwise: U) -> T | U:
        try:
            return read()
        except ConfigError as error:
            self.found.append(f"{where}: {error}")
            return otherwise

    def unknown(self, where: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
        self.found += [f"{where}: {key!r} is unknown; there are {', '.join(known)}" for key in given if key not in known]

    def raise_all(self) -> None:
        if self.found:
            raise ConfigError("; ".join(self.found))


def project_of(given: Any, others: Mapping[str, DataJob], before: Mapping[str, DataJob], now: datetime) -> Project:
    """The project that a file defines.

    `others` are the jobs of other projects, which may be waited for. `before` are the jobs of this project as they were: one whose file has
    no `since` keeps the one that it had, and a new one begins with the first business time whose trigger is not over.

    Raises ConfigError with all problems of the file.
    """
    problems = _Problems()
    name, drafts = _drafts(problems, given, before, now)
    rule = problems.read("the project", lambda: project_rules.rule_of_project(given), project_rules.ProjectRule())
    jobs: dict[str, DataJob] = {}
    for draft in drafts:
        if draft.job.name in jobs:
            problems.found.append(f"{draft.where}: the name is given twice")
        elif draft.job.name in others:
            problems.found.append(f"{draft.where}: the project {others[draft.job.name].project!r} has a job of this name")
        jobs[draft.job.name] = draft.job
    known = {**others, **jobs}
    for draft in drafts:
        jobs[draft.job.name] = _with_needs(problems, draft, known, now)
    problems.raise_all()
    return Project(name, jobs, rule)


def saved_jobs(files: Sequence[Mapping[str, Any]], others: Mapping[str, DataJob]) -> Mapping[str, DataJob]:
    """The jobs of these projects, by name, as their files were saved (see `with_since`). `others` are the jobs of all other projects.

    Raises ConfigError for what an older release allowed and this one does not.
    """
    problems = _Problems()
    drafts = [draft for file in files for draft in _drafts(problems, file, {}, datetime.fromtimestamp(0, timezone.utc))[1]]
    known = {**others, **{draft.job.name: draft.job for draft in drafts}}
    jobs = {draft.job.name: _with_needs(problems, draft, known, None) for draft in drafts}
    problems.raise_all()
    return jobs


def virtual_jobs_of(given: Any) -> Sequence[DataJob]:
    """The virtual jobs of a file, without what makes them. One whose file says no `since` has none that counts.

    Raises ConfigError for a file that is no project, whose jobs may wait for any others.
    """
    problems = _Problems()
    _, drafts = _drafts(problems, _without_sql(given), {}, datetime.fromtimestamp(0, timezone.utc))
    problems.raise_all()
    return [draft.job for draft in drafts if draft.job.virtual]


def _without_sql(given: Any) -> Any:
    """The file without what lineage reads from it, before anything else does."""
    if not isinstance(given, Mapping):
        return given
    jobs = given.get("jobs")
    plain = [_without_sql(job) for job in jobs] if isinstance(jobs, list) else jobs
    return {key: plain if key == "jobs" else value for key, value in given.items() if key != "sql"}


def mode_of(given: Mapping[str, Any]) -> LineageMode:
    """What the project does with waits that lineage asks for. Raises ConfigError."""
    mode = given.get("dependencies", LineageMode.SUGGEST.value)
    if mode not in [one.value for one in LineageMode]:
        raise ConfigError(f"'dependencies' is {mode!r} but must be {' or '.join(one.value for one in LineageMode)}")
    return LineageMode(mode)


def with_since(given: Mapping[str, Any], project: Project) -> Mapping[str, Any]:
    """The file of a project as it is saved: each job says since when it is, and the rule in which form."""
    jobs = [{**one, "since": _since_text(project.jobs[one["name"]])} for one in given["jobs"]]
    plain = {key: value for key, value in given.items() if key not in project_rules.RULE_KEYS or key == "after"}
    return {**plain, **project_rules.rule_keys(project.rule), "jobs": jobs}


def _since_text(job: DataJob) -> str:
    return job.calendar.text(job.since)


def _drafts(problems: _Problems, given: Any, before: Mapping[str, DataJob], now: datetime) -> tuple[str, list[_Draft]]:
    if not isinstance(given, Mapping) or not isinstance(given.get("jobs"), list):
        raise ConfigError("the file of a project must have 'project' and a list 'jobs'; see docs/center.md")
    if len(given["jobs"]) > MOST_JOBS:
        raise ConfigError(f"the file has {len(given['jobs'])} jobs, more than {MOST_JOBS}: make several projects of it")
    problems.unknown("the project", given, _PROJECT_KEYS)
    name = problems.read("the project", lambda: plain_name("project", given.get("project")), "?")
    problems.read("the project", lambda: mode_of(given), LineageMode.SUGGEST)
    return name, [_draft(problems, name, given, one, number, before, now) for number, one in enumerate(given["jobs"], start=1)]


def _draft(
    problems: _Problems, project: str, file: Mapping[str, Any], given: Any, number: int, before: Mapping[str, DataJob], now: datetime
) -> _Draft:
    if not isinstance(given, Mapping):
        problems.found.append(f"job {number}: it is {given!r} but must have a name and a period")
        given = {}
    where = f"job {given.get('name', number)}"
    problems.unknown(where, given, _JOB_KEYS)
    name = problems.read(where, lambda: plain_name("name", given.get("name")), f"?{number}")
    calendar = problems.read(where, lambda: _calendar(given, file.get("zone", "UTC")), Calendar(Period.DAY, "UTC"))
    first = Trigger.first(calendar.period).text()
    text = str(given.get("trigger", first))
    if calendar.period is not Period.HOUR and not isinstance(given.get("trigger", first), str):
        problems.found.append(f"{where}: 'trigger' is {given['trigger']!r} but must be a text: write it in quotes, like \"{first}\"")
        text = first
    trigger = problems.read(where, lambda: Trigger.parse(calendar.period, text), Trigger.parse(calendar.period, first))
    fresh = before[name].since if name in before and before[name].calendar == calendar else time_of_trigger(calendar, trigger, now)
    since = problems.read(where, lambda: calendar.parse(str(given["since"])) if "since" in given else fresh, fresh)
    virtual = given.get("virtual", False) is True or "made-by" in given
    receiver = None if virtual else problems.read(where, lambda: _receiver(given.get("receiver", file.get("receiver"))), "?")
    parts = problems.read(where, lambda: _texts("parts", given.get("parts", [])), ())
    produces = problems.read(where, lambda: _texts("produces", given.get("produces", [])), ())
    reads = problems.read(where, lambda: _texts("reads", given.get("reads", [])), ())
    promise = problems.read(where, lambda: _promise(calendar.period, given.get("promise")), None)
    problems.found += [f"{where}: {one}" for one in _contradictions(given, virtual)]
    owner = given.get("owner", file.get("owner", ""))
    if not isinstance(owner, str):
        problems.found.append(f"{where}: 'owner' is {owner!r} but must be a text")
    needs = given.get("needs", [given["made-by"]] if "made-by" in given else [])
    if not isinstance(needs, list):
        problems.found.append(f"{where}: 'needs' is {needs!r} but must be a list")
        needs = []
    quality = problems.read(where, lambda: plain_name(QUALITY, given[QUALITY]) if QUALITY in given else "", "")
    job = DataJob(name, project, str(owner), calendar, trigger, since, (), produces, receiver, parts, reads, promise, quality=quality)
    return _Draft(job, needs, where)


def _promise(period: Period, given: Any) -> Until | None:
    if given is not None and not isinstance(given, str):
        raise ConfigError(f'\'promise\' is {given!r} but must be a text: write it in quotes, like "06:00" or "2h"')
    return None if given is None else Until.parse(period, given.strip(), "promise")


def _contradictions(given: Mapping[str, Any], virtual: bool) -> Iterator[str]:
    if "virtual" in given and not isinstance(given["virtual"], bool):
        yield f"'virtual' is {given['virtual']!r} but must be true or false"
    if virtual and "receiver" in given:
        yield "a virtual job is run elsewhere, so it has no 'receiver': leave one of them out"
    if virtual and "needs" in given:
        yield "a virtual job is run elsewhere, so it has no 'needs'; 'made-by' says what makes its data"
    unknown = given.get(UNKNOWN_SQL, [])
    if not isinstance(unknown, list) or not all(isinstance(one, str) for one in unknown):
        yield f"'{UNKNOWN_SQL}' is {unknown!r} but must be a list of texts: leave it out, because the center writes it"
    if "parts" in given and (not virtual or "made-by" in given):
        yield "'parts' belong to a virtual job that is reported part by part"
    if QUALITY in given and "made-by" in given:
        yield f"'{QUALITY}' is of runs that are reported, and nobody reports those of a job with 'made-by': leave one of them out"


def _with_needs(problems: _Problems, draft: _Draft, known: Mapping[str, DataJob], now: datetime | None) -> DataJob:
    """The job with its edges. Without `now` they were checked when they were saved."""
    edges: list[Dependency] = []
    for number, given in enumerate(draft.needs, start=1):
        where = f"{draft.where}, need {number}"
        if not isinstance(given, Mapping):
            problems.found.append(f"{where}: it is {given!r} but must be like {{job: ods.load}} or {{table: lake.ods.orders}}")
            continue
        problems.unknown(where, given, _NEED_KEYS)
        edge = problems.read(where, partial(_edge, draft.job, given, known), None)
        if edge is not None:
            checked = () if now is None else check(edge.offsets, draft.job.calendar, edge.calendar, now)
            problems.found += [f"{where}: {one}" for one in checked]
            edges.append(edge)
    return replace(draft.job, needs=tuple(edges))


def _edge(job: DataJob, given: Mapping[str, Any], known: Mapping[str, DataJob]) -> Dependency:
    kinds = [kind for kind in (JOB, TABLE, ASSET) if kind in given]
    if len(kinds) != 1 or not isinstance(given[kinds[0]], str):
        raise ConfigError(f"it must name one of {JOB}, {TABLE} and {ASSET}, and names {', '.join(kinds) or 'none'}")
    offsets = Offsets.parse(str(given.get("times", "0")))
    rule = rule_of(job.calendar.period, given)
    if job.virtual and not rule.is_strong:
        raise ConfigError(f"what makes a virtual job has none of {', '.join(RULE_KEYS)}, because its data is there or not: leave them out")
    if "if-failed" in given and kinds[0] != JOB:
        raise ConfigError("'if-failed' is about runs of jobs, and tables and assets have none: leave it out")
    upstream = _upstream(kinds[0], given, known)
    if isinstance(upstream, JobRun):
        if "period" in given or "zone" in given:
            raise ConfigError("'period' and 'zone' are those of the job that is waited for: leave them out")
        return Dependency(upstream, known[upstream.job].calendar, offsets, rule)
    return Dependency(upstream, _calendar({"period": job.calendar.period.value, **given}, job.calendar.zone), offsets, rule)


def _upstream(kind: str, given: Mapping[str, Any], known: Mapping[str, DataJob]) -> Upstream:
    name = str(given[kind]).strip()
    if ("part" in given and kind != JOB) or (("partition" in given or WATERMARK in given) and kind != TABLE):
        which = (
            "a table has no 'part'" if kind == TABLE else f"{'a job' if kind == JOB else 'an asset'} has no 'partition' and no 'watermark'"
        )
        raise ConfigError(f"{which}: leave it out")
    if "partition" in given and WATERMARK in given:
        raise ConfigError("'partition' and 'watermark' are both given: a watermark is of the whole table, so leave one out")
    if kind == JOB:
        found = known.get(name)
        if found is None:
            raise ConfigError(f"there is no job {name!r}: define it, or correct the name")
        part = str(given.get("part", "")).strip()
        if part and part not in found.parts:
            raise ConfigError(f"the job {name!r} declares no part {part!r}; it has {', '.join(found.parts) or 'none'}")
        return JobRun(name, part)
    name = _data_name(kind, name)
    if "partition" in given:
        return table_partition(name, str(given["partition"]))
    if WATERMARK in given:
        if given[WATERMARK] is not True:
            raise ConfigError(f"'watermark' is {given[WATERMARK]!r} but must be true, or be left out")
        return TableWatermark(name)
    return DataWindow(kind, name)


def _data_name(kind: str, name: str) -> str:
    """The one name of a table or an asset. Raises ConfigError."""
    if "&&" in name or not name:
        raise ConfigError(f"'{kind}' is {name!r} but must be a name")
    check_text(f"'{kind}'", name)
    # Reports of commits name a table in one way.
    return str(TableIdentifier.parse(name)) if kind == TABLE else name


def _calendar(given: Mapping[str, Any], zone: Any) -> Calendar:
    try:
        period = Period(str(given.get("period", "")).upper())
    except ValueError:
        raise ConfigError(f"'period' is {given.get('period')!r} but must be hour, day, week or month") from None
    return Calendar(period, str(given.get("zone", zone)))


def _receiver(given: Any) -> str:
    if given is None:
        raise ConfigError(
            "'receiver' is missing: write in the job, or in the project for all of its jobs, by which name its scheduler claims it; "
            "a job that is run elsewhere and only reported has 'virtual: true' instead"
        )
    return plain_name("receiver", given)


def _texts(key: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() and "&&" not in one for one in given):
        raise ConfigError(f"'{key}' is {given!r} but must be a list of texts")
    for one in given:
        check_text(f"'{key}'", one)
    return tuple(one.strip() for one in given)
