"""Attempts to commit: one loop for compactions and for writers. It knows neither tasks nor kinds of tables.

An attempt loads the table afresh, looks for an earlier landing, decides what goes in, writes manifests, and swaps the catalog's pointer
once. It ends in one of three ways: committed; certainly not committed (another writer was first, or the catalog refused); or unknown. No
file is deleted while an outcome is unknown. Whoever runs the loop turns the end into an error or a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.iceberg.catalogs.rest_catalog import counted_sends
from compaction_pipeline.iceberg.deletions import delete_quietly
from compaction_pipeline.iceberg.rewrite_files import Transaction

_Done = TypeVar("_Done")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class RetryPolicy:
    """How often a commit that lost a race is tried again, and after which pauses.

    `pause_ms` gets how many attempts have lost, and a random number from 0 to 1, so that two writers that met once do not meet again.
    `passes_unknown` says whether a commit without an answer goes on as soon as main has moved on from the snapshot that the attempt was
    built on. The attempt can land only after a rollback then, and must find its files, so they stay.
    """

    retries: int
    total_timeout_ms: float
    pause_ms: Callable[[int, float], float]
    passes_unknown: bool

    WRITER: ClassVar[RetryPolicy]
    """That of writers. Their files must never land later, so after a commit without an answer the writer's caller decides what to do."""

    @classmethod
    def of_table(cls, properties: Mapping[str, str]) -> RetryPolicy:
        """The policy of a compaction: what the table's properties ask for (`commit.retry.*`), with Iceberg's own defaults."""
        least_ms = _integer(properties, "commit.retry.min-wait-ms", 100)
        most_ms = _integer(properties, "commit.retry.max-wait-ms", 60_000)
        return cls(
            retries=_integer(properties, "commit.retry.num-retries", 4),
            total_timeout_ms=_integer(properties, "commit.retry.total-timeout-ms", 1_800_000),
            # The pause doubles each time, and is multiplied by a random factor from 0.5 to 1.5.
            pause_ms=lambda lost, jitter: min(least_ms * 2 ** (lost - 1), most_ms) * (0.5 + jitter),
            passes_unknown=True,
        )


RetryPolicy.WRITER = RetryPolicy(
    retries=19,
    total_timeout_ms=float("inf"),
    pause_ms=lambda lost, jitter: (10 + 40 * jitter) * lost,
    passes_unknown=False,
)


@dataclass(frozen=True, slots=True)
class Swap(Generic[_Done]):
    """Snapshots that are staged on a loaded table, ready to be swapped in. `done` is the result of the commit when they land."""

    transaction: Transaction
    done: _Done
    policy: RetryPolicy


@dataclass(frozen=True, slots=True)
class Failure:
    """What the swap raised, and how a REST catalog answered each time the request was sent (`core/commit/answers.py`)."""

    error: Exception
    statuses: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Committed(Generic[_Done]):
    """The commit landed, or nothing was left to commit."""

    done: _Done
    attempts: int


@dataclass(frozen=True, slots=True)
class LostRace:
    """Another writer was first each time, and the policy allows no further attempt. Certainly nothing was committed."""

    policy: RetryPolicy
    attempts: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The catalog refused the commit. Certainly nothing was committed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Unknown(Generic[_Done]):
    """The commit may have landed, may still land, or may never land; `expected` is its result if it lands.

    `unread` is why the table could not be read after the failure; None when it was read and does not show the commit.
    """

    expected: _Done
    answer: Answer
    failure: Failure
    unread: CompactionError | None
    attempts: int


class Commit(Protocol[_Done]):
    """A commit as the loop sees it."""

    def stage(self, attempt: int) -> Swap[_Done] | _Done:
        """Load the table, decide what goes in, and write its manifests. Returns the result of the commit when nothing is to be swapped.

        Attempts are numbered from 1. If this raises, nothing was committed by this attempt, and what it has written is deleted.
        """
        ...

    def proof(self, swap: Swap[_Done], failure: Failure) -> Answer:
        """What the failure of a swap proves, before the table is looked at."""
        ...

    def reloaded(self, swap: Swap[_Done]) -> Table:
        """The newest metadata of the swap's table. Raises a CompactionError when it cannot be read now."""
        ...

    def landed(self, swap: Swap[_Done], fresh: Table) -> _Done | None:
        """The result of the commit when the newest metadata shows it; None while it does not.

        Raises a CompactionError when that cannot be read now.
        """
        ...


def until_won(
    attempt: Callable[[int], _Result | LostRace], sleep: Callable[[float], None], jitter: Callable[[], float]
) -> _Result | LostRace:
    """Make attempts, numbered from 1, until one ends in another way than by a lost race, or its policy allows no more."""
    started = time.monotonic()
    number = 1
    while True:
        ended = attempt(number)
        if not isinstance(ended, LostRace):
            return ended
        policy = ended.policy
        if number > policy.retries or (time.monotonic() - started) * 1000 >= policy.total_timeout_ms:
            return ended
        sleep(policy.pause_ms(number, jitter()) / 1000)
        number += 1


def make_commit(
    commit: Commit[_Done], sleep: Callable[[float], None], jitter: Callable[[], float]
) -> Committed[_Done] | LostRace | Refused | Unknown[_Done]:
    """Make this commit. Raises what `stage` and `proof` raise; certainly nothing was committed then by the attempt that raised."""

    def attempt(number: int) -> Committed[_Done] | LostRace | Refused | Unknown[_Done]:
        staged = commit.stage(number)
        return _swapped(commit, staged, number) if isinstance(staged, Swap) else Committed(staged, number)

    return until_won(attempt, sleep, jitter)


def _swapped(commit: Commit[_Done], swap: Swap[_Done], number: int) -> Committed[_Done] | LostRace | Refused | Unknown[_Done]:
    with counted_sends() as sends:
        try:
            swap.transaction.commit()
        except Exception as error:
            failure = Failure(error, sends.statuses)
        else:
            return Committed(swap.done, number)
    return _settled(commit, swap, failure, number)


def _settled(
    commit: Commit[_Done], swap: Swap[_Done], failure: Failure, number: int
) -> Committed[_Done] | LostRace | Refused | Unknown[_Done]:
    """How an attempt ended whose swap failed. The table is looked at after every failure: a client or a proxy that sent the request twice
    may have the second one refused after the first one landed."""
    answer = commit.proof(swap, failure)
    try:
        fresh = commit.reloaded(swap)
        landed = commit.landed(swap, fresh)
    except CompactionError as error:
        # The files of a refused attempt stay too: nobody knows now whether the table is still the one that they belong to.
        return Refused(failure) if answer is Answer.REFUSED else Unknown(swap.done, answer, failure, error, number)
    if landed is not None:
        return Committed(landed, number)
    if answer is Answer.UNKNOWN:
        if swap.policy.passes_unknown and head_id(fresh.metadata) != swap.transaction.parent_id:
            return LostRace(swap.policy, number)
        return Unknown(swap.done, answer, failure, None, number)
    # If the name belongs to another table now, the commit may have landed in the original one, which was renamed.
    table = swap.transaction.table
    if fresh.metadata.table_uuid == table.metadata.table_uuid:
        # What was just loaded tells of a ban that came during the attempt.
        delete_quietly(table, swap.transaction.written, fresh)
    return Refused(failure) if answer is Answer.REFUSED else LostRace(swap.policy, number)


def snapshots_with(metadata: TableMetadata, key: str, value: str) -> Sequence[Snapshot]:
    """The snapshots whose summaries have this value: those that one commit made, when it is the commit's id."""
    return [one for one in metadata.snapshots if one.summary is not None and one.summary.additional_properties.get(key) == value]


def head_id(metadata: TableMetadata) -> int | None:
    """The snapshot that main is at; None for a table without one."""
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    return head.snapshot_id if head else None


def _integer(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, "")
    return int(text) if text.isdigit() else default
