"""The port of the dependency center: definitions, instances, what they wait for, and what is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from compaction_pipeline.core.dependencies.center.inbox import Fact, RunId, SetAside
from compaction_pipeline.core.dependencies.center.instances import Instance, InstanceState
from compaction_pipeline.core.dependencies.center.jobs import Requirement
from compaction_pipeline.core.dependencies.center.lineage import Alert
from compaction_pipeline.core.dependencies.center.strength import Group

LEADER = "dependency center"
"""The lease of the one process that makes instances and applies facts."""


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, by the owner of the lease, and the time of the pass. A transaction of one that leads no more changes nothing."""

    owner: str
    now: datetime


@dataclass(frozen=True, slots=True)
class SavedProject:
    """The file of a project, as it was read, and how many changes of all projects there had been then."""

    name: str
    file: Mapping[str, Any]
    version: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The next business time of a job, by its text, and when its trigger is; None when there is none."""

    job: str
    biz: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Made:
    """An instance to be made. `receiver` is None when nobody starts it, because it succeeds by itself. `groups` are of its weak edges."""

    job: str
    biz: str
    origin: str
    receiver: str | None
    requirements: tuple[Requirement, ...]
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingAnew:
    """What instances wait for from now on, by job, and the number of the newest instance that there was when this was found out.

    Instances of the jobs `nodes` wait anew also when they have succeeded. One of another job that succeeds meanwhile stays as it is.
    """

    by_job: Mapping[str, Sequence[Made]]
    newest: int
    nodes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that an instance waits for, or waited for: its subject as a text, the edge, whether it was told that it is there, and how
    far it is. `opens_at` is that of its requirement."""

    edge: int
    key: str
    bound: int
    met: bool
    reached: int
    at: datetime | None
    opens_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class InstanceQuery:
    """Which instances are asked for; None asks for all. `receiver` is who starts them."""

    job: str | None = None
    biz: str | None = None
    origin: str | None = None
    state: InstanceState | None = None
    most: int = 100
    receiver: str | None = None
    oldest_first: bool = False


@dataclass(frozen=True, slots=True)
class SqlRules:
    """How the SQL of a project is read: its dialect, the `catalog` and the `namespace` (levels joined by dots) of names without one, "" for
    none, and all names that are catalogs."""

    dialect: str
    catalog: str
    namespace: str
    catalogs: frozenset[str]


@dataclass(frozen=True, slots=True)
class SqlTables:
    """The tables that SQL reads and writes, as `table=…`, in order, and a sentence for each thing that was not understood."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    unknown: tuple[str, ...]


class RunHistory(Protocol):
    """What runs and data there were. Runs are scheduled ones."""

    def open_runs(self, jobs: Sequence[str]) -> Sequence[Instance]:
        """Return the instances of these jobs that wait, are ready, or run; the oldest first."""

    def scheduled(self, runs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Instance]:
        """Return the instances of these jobs and business times that exist."""

    def last_runs(self, jobs: Sequence[str], most: int) -> Mapping[str, Sequence[Instance]]:
        """Return the newest runs of each job that have succeeded, the newest first; of a virtual job with parts, those of each part."""

    def arrivals(self, keys: Sequence[str]) -> Mapping[str, tuple[int, datetime]]:
        """Return how far these have got, and since when. Those that nobody told anything of are missing."""


class SqlReader(Protocol):
    """Finds the tables of SQL."""

    def __call__(self, sql: str, rules: SqlRules) -> SqlTables:
        """Return the tables of statements. Raises ConfigError for an unknown dialect, for SQL that is too long, and without sqlglot."""


@dataclass(frozen=True, slots=True)
class Told:
    """What instances were told: of how many requirements that changed and changes that ended, and which of them are ready by it."""

    changes: int = 0
    released: Sequence[RunId] = ()


@dataclass(frozen=True, slots=True)
class Released:
    """Which instances became ready, and which succeeded by themselves, because nobody starts them."""

    ready: Sequence[RunId] = ()
    ended: Sequence[RunId] = ()


class CenterStore(Protocol):
    """The state of the dependency center. Each method is one transaction.

    Those with a `leader` return nothing found, and change nothing, when this process leads no more.
    """

    def projects(self, after: int = 0) -> Sequence[SavedProject]:
        """Return the projects that changed after this version, by name. Those without jobs were removed."""

    def version(self) -> int:
        """Return how many changes of projects there were."""

    def turns(self, project: str) -> Sequence[Turn]:
        """Return the next turns of the jobs of a project."""

    def unclaimed(self, jobs: Sequence[str]) -> Sequence[Instance]:
        """Return the instances of these jobs that are waiting, or ready and not claimed."""

    def save_project(
        self, name: str, file: Mapping[str, Any], version: int, turns: Sequence[Turn], waiting: WaitingAnew, now: datetime
    ) -> bool:
        """Replace a project. Jobs that `turns` has no more are removed with the instances that nobody has claimed. One that was to run
        again has failed instead: its earlier keys were started, and must not come again if the job comes back.

        `waiting` has by job what the unclaimed instances of its jobs, and of others, wait for from now on; an instance that does not exist
        is made. Return False, and change nothing, when projects have changed since `version`, or one of these jobs has an unclaimed
        instance that `waiting` has not: one that waits or is ready, or one that was made and has succeeded by itself meanwhile.
        """

    def post(self, facts: Sequence[Fact], version: int | None = None, *, missed_by: str | None = None) -> bool:
        """Put facts into the inbox. Return False, and put nothing there, when projects have changed since `version`, if it is given.

        `missed_by` is the detector that should have seen them before; each counts as an event that it missed.
        """

    def generations(self, told: Mapping[RunId, int]) -> Mapping[RunId, int]:
        """Return the highest generation that is there of each of these runs, also by facts that are not applied yet.

        `told` has the highest generation that somebody tells of each. What is not applied yet counts only where one of them is not known
        otherwise: its run is not there, or it is more than one higher than that of its run.
        """

    def problems(self) -> Mapping[str, str]:
        """Return why nobody knows how far tables are, by their name, and things of tables, by their key."""

    def note_problem(self, name: str, problem: str | None) -> None:
        """Note why nobody knows how far this is; None when somebody knows."""

    def last_reports(self, jobs: Sequence[str]) -> Mapping[str, datetime]:
        """Return when a run of each of these jobs was reported last. Those of which none is known are left out."""

    def note_alerts(self, alerts: Sequence[Alert]) -> None:
        """Keep what owners of jobs should look at, in place of what was kept."""

    def set_aside(self, most: int) -> Sequence[SetAside]:
        """Return the oldest facts that could not be applied."""

    def try_again(self, number: int) -> SetAside:
        """Put a fact that was set aside back into the inbox, and return it.

        Raises NotFoundError, and ConfigError for one that cannot be read, or when what it is about has changed since it was said.
        """

    def remove_fact(self, number: int) -> SetAside:
        """Remove a fact that was set aside, and return it. Raises NotFoundError."""

    def claim(self, receiver: str, most: int, now: datetime) -> Sequence[Instance]:
        """Return the oldest ready instances of a receiver, and note that it has them.

        What it claimed before, and nobody knows it has got, is returned again. What was taken back is not.
        """

    def note_delivered(self, receiver: str, delivered: Sequence[tuple[int, int]], now: datetime) -> int:
        """Note that the receiver has these, by id and generation. Return how many this was true of."""

    def instances(self, query: InstanceQuery) -> Sequence[Instance]:
        """Return instances, the newest first where the query does not say otherwise."""

    def waits(self, instance_id: int) -> Sequence[Wait]:
        """Return what an instance waits for, by edge."""

    def groups(self, instance_id: int) -> Sequence[tuple[Group, bool]]:
        """Return the groups of an instance, by edge, each with whether the instance need not wait for it."""

    def reached(self, keys: Sequence[str]) -> Mapping[str, int]:
        """Return how far these have got. Those that nobody told anything of are missing."""

    def there(self, kind: str, name: str, source: str) -> Sequence[str]:
        """Return the keys of a kind and name that are there, and of which this source has told something by its own numbers."""

    def awaited(self, kind: str, ended_after: datetime, most: int, names: Collection[str] | None = None) -> Sequence[str]:
        """Return the keys of a kind (`table`, `asset`) that instances that nobody claimed wait for, or have found there; with `names`, only
        those of these tables.

        Of those that have succeeded by themselves, these are the ones that did so after this time.
        """

    def is_idle(self, now: datetime) -> bool:
        """Return whether there is nothing for the leader to do."""

    def take_reported(self) -> frozenset[str]:
        """Return the tables of which something was reported since this was called last, among those that were ever waited for."""

    def due(self, leader: Leader, most: int) -> Sequence[Turn]:
        """Return jobs whose next trigger is over, the oldest first."""

    def make(self, leader: Leader, version: int, made: Sequence[Made], turns: Sequence[Turn]) -> int | None:
        """Make instances that look at what is known, and set the next turns of jobs. One that exists is left as it is.

        Return how many were made; None, when projects have changed since `version`.
        """

    def backfill(self, version: int, made: Sequence[Made], now: datetime) -> int | None:
        """Make instances at once. Return how many; None, and change nothing, when projects have changed since `version`."""

    def run_again(self, version: int, before: Instance, made: Made, now: datetime) -> bool:
        """Let an instance wait for its data again, as the next generation. Return False when it has changed meanwhile."""

    def take_in(self, leader: Leader, most: int) -> int:
        """Apply the oldest facts of the inbox, and remove them. Return how many.

        One that cannot be applied is set aside, kept and logged, and those that came after it are applied.
        """

    def spread(self, leader: Leader, most: int) -> Told:
        """Let instances know what has changed, the newest change first. One that misses nothing more may become ready at once."""

    def look_again(self, leader: Leader, most: int) -> int:
        """Let instances look again at groups that may have changed with time, or by runs that failed. Return at how many."""

    def release(self, leader: Leader, most: int) -> Released:
        """Make instances ready that miss nothing, and let those succeed that nobody starts."""

    def recount(self) -> int:
        """Return how many waiting instances have another count of what is missing than their requirements; it must be none."""

    def expire(self, before: datetime) -> int:
        """Remove ended instances that were made before, and what nobody waits for since then. Return how many instances."""
