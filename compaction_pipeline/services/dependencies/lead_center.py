"""Does what the leader of the dependency center does: makes instances, applies facts, and releases what misses nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache

from compaction_pipeline.core.dependencies.center.inbox import RunId
from compaction_pipeline.core.dependencies.center.jobs import SCHEDULED, DataJob, groups, requirements
from compaction_pipeline.core.dependencies.center.periods import Calendar
from compaction_pipeline.core.dependencies.center.ports import LEADER, CenterStore, Leader, Made, Turn
from compaction_pipeline.core.dependencies.center.subjects import BACKFILL, BIZ, named_in
from compaction_pipeline.core.dependencies.center.triggers import Trigger
from compaction_pipeline.core.dependencies.center.upstreams import JobRun
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.services.dependencies.definitions import Definitions, Jobs
from compaction_pipeline.services.held_lease import Leases

_LOG = logging.getLogger(__name__)
AT_ONCE = 2_000
"""A transaction changes at most so many rows, so that other facts need not wait for a large one."""
KEPT = timedelta(days=400)
"""So long what has ended is remembered. What is older is unknown, and so not ready."""
_EXPIRE_EVERY = timedelta(hours=1)
_RENEW_EVERY = LEASE / 6


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass did: how many turns it took, how many facts it applied, of how many changes and moments it told, what it released."""

    made: int = 0
    facts: int = 0
    told: int = 0
    released: tuple[RunId, ...] = ()

    @property
    def did_something(self) -> bool:
        return bool(self.made or self.facts or self.told or self.released)

    @property
    def is_full(self) -> bool:
        """Whether more of the same is left to do, or follows from what was done."""
        return max(self.made, self.facts, self.told, len(self.released)) >= AT_ONCE


class LeadCenter:
    """The verbs are run, run_while_full, once and resign. `leads` says whether this process led at its last pass."""

    def __init__(self, store: CenterStore, definitions: Definitions, leases: Leases) -> None:
        self._store = store
        self._definitions = definitions
        self._leases = leases
        self._owner = leases.new_owner()
        self._expired_at: datetime | None = None
        self._renewed_at: datetime | None = None
        self.leads = False

    def run(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Do passes until nothing is left to do, or it is over, or another process leads."""
        while not is_over():
            done = self.once()
            if done is None or not done.did_something:
                return

    def run_while_full(self, is_over: Callable[[], bool]) -> None:
        """Do a pass, and go on as long as passes are full. So what comes one by one is gathered until the next call."""
        while not is_over():
            done = self.once()
            if done is None or not done.is_full:
                return

    def once(self) -> Pass | None:
        """Do one pass. Return None when another process leads."""
        now = self._leases.clock()
        if not self._leads_at(now):
            return None
        leader = Leader(self._owner, now)
        if self._store.is_idle(leader.now):
            self._expire(leader.now)
            return Pass()
        made = self._make(leader)
        if not made:
            # After an outage, triggers that passed meanwhile may still reach what is old.
            self._expire(leader.now)
        facts = self._store.take_in(leader, AT_ONCE)
        told = self._store.spread(leader, AT_ONCE)
        changes = told.changes + self._store.look_again(leader, AT_ONCE)
        newest = self._store.release(leader, AT_ONCE)
        released = [*told.released, *newest.ready, *newest.ended]
        while newest.ended and max(changes, len(released)) < AT_ONCE:
            # What waits for what succeeded by itself starts at the same moment.
            told = self._store.spread(leader, AT_ONCE)
            newest = self._store.release(leader, AT_ONCE)
            changes += told.changes
            released += [*told.released, *newest.ready, *newest.ended]
        return Pass(made, facts, changes, tuple(released))

    def _leads_at(self, now: datetime) -> bool:
        """Renew the lease where it is time. In between, each transaction looks at it."""
        if not self.leads or self._renewed_at is None or not self._renewed_at <= now < self._renewed_at + _RENEW_EVERY:
            self.leads = self._leases.lead(LEADER, self._owner, LEASE)
            self._renewed_at = now
        return self.leads

    def resign(self) -> None:
        """Let another process lead at once."""
        self.leads = False
        self._leases.release(LEADER, self._owner)

    def _make(self, leader: Leader) -> int:
        jobs = self._definitions.jobs()
        turns = self._store.due(leader, AT_ONCE)
        if not turns:
            return 0
        if self._store.version() != jobs.version:
            # A project changed in between, so these may be turns of other jobs. The next pass takes them.
            return len(turns)
        made, following, more = [], [], AT_ONCE - len(turns)
        for turn in turns:
            job = jobs.get(turn.job)
            made.append(made_of(job, turn.biz, SCHEDULED, jobs, leader.now))
            turn = turn_after(job, turn)
            # After a time without a leader, a job has many turns.
            while more > 0 and turn.at is not None and turn.at <= leader.now:
                made.append(made_of(job, turn.biz, SCHEDULED, jobs, leader.now))
                turn, more = turn_after(job, turn), more - 1
            following.append(turn)
        made += nodes_of(made, jobs, leader.now)
        # When a project changed in between, or another process leads, nothing was made. Those that exist are not made, but others follow.
        return 0 if self._store.make(leader, jobs.version, made, following) is None else len(made)

    def _expire(self, now: datetime) -> None:
        if self._expired_at is None or now - self._expired_at > _EXPIRE_EVERY:
            self._store.expire(now - KEPT)
            self._expired_at = now


def made_of(job: DataJob, biz: str, origin: str, jobs: Jobs, made_at: datetime, backfill: frozenset[tuple[str, str]] = frozenset()) -> Made:
    """The instance of a job for a business time. `made_at` is that of its backfill, and `backfill` has the jobs and business
    times of it."""
    time = job.calendar.parse(biz)
    needs = requirements(job, time, jobs.by_name, origin, lambda name, time: (name, time) in backfill)
    if backfill:
        needs = tuple(dict.fromkeys([*needs, *jobs.makers.runs(job, time, origin, lambda name, time: (name, time) in backfill)]))
    # In a backfill, what its triggers had made long ago counts from now on.
    weak = groups(job, needs, lambda: job.trigger.instant(job.calendar, time) if origin == SCHEDULED else made_at)
    return Made(job.name, biz, origin, job.receiver, needs, weak)


def nodes_of(made: Sequence[Made], jobs: Jobs, made_at: datetime, backfill: frozenset[tuple[str, str]] = frozenset()) -> list[Made]:
    """The instances of nodes that these need, and those that these nodes need. `made_at` and `backfill` are as in `made_of`."""
    found: dict[str, Made] = {}
    behind = list(made)
    while behind:
        one = behind.pop()
        for need in one.requirements:
            upstream = jobs.by_name[one.job].needs[need.edge].upstream
            if not isinstance(upstream, JobRun) or not jobs.by_name[upstream.job].node or need.subject.key in found:
                continue
            named = named_in(need.subject.key)
            node = made_of(jobs.by_name[upstream.job], named[BIZ], named.get(BACKFILL, SCHEDULED), jobs, made_at, backfill)
            found[need.subject.key] = node
            behind.append(node)
    return list(found.values())


def first_turn(job: DataJob) -> Turn:
    """The turn of the first instance of a job."""
    return Turn(job.name, job.calendar.text(job.since), job.trigger.instant(job.calendar, job.since) if job.has_instances else None)


def turn_after(job: DataJob, turn: Turn) -> Turn:
    """The turn that follows."""
    later = _after(job.calendar, job.trigger, turn.biz)
    return replace(turn, at=None) if later is None else Turn(job.name, *later)


@lru_cache(maxsize=2**12)
def _after(calendar: Calendar, trigger: Trigger, biz: str) -> tuple[str, datetime] | None:
    """The business time that follows one, and its trigger. At one trigger many jobs ask for the same."""
    time, by = calendar.parse(biz), 1
    # A day that a zone left out has no instance.
    while (later := calendar.shift(time, by)) is None and by < 3:
        by += 1
    return None if later is None else (calendar.text(later), trigger.instant(calendar, later))
