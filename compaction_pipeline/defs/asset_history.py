"""What Dagster's event log says of one asset: which partitions changed, and which are there.

A partition is there when the run of its newest materialization ended well, and each blocking check has passed for it since. An event that
no run made (`report_asset_materialization`, a sensor) counts like one whose run ended well. A run that ended badly only because a check
failed ended well for its materializations: the check itself is asked. One that failed otherwise counts when a run again of it succeeds.

An evaluation without a partition is about what its own run made. One of a run that made nothing of the asset, or of no run, is about
every partition that had been materialized before it, so that it holds up all of them when it failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecord as Evaluated

_MATERIALIZATION = dg.DagsterEventType.ASSET_MATERIALIZATION
_PARTITION_TAG, _ROOT_TAG = "dagster/partition", "dagster/root_run_id"
_CHECK_FAILED = "DagsterAssetCheckFailedError"
_PASSED, _ENDED = "SUCCEEDED", ("SUCCEEDED", "FAILED")
_SOME = 500
_SLACK = 600.0
"""Clocks of hosts that store events may differ by so many seconds."""
_LONGEST_CHECK = 86_400.0
"""A check is planned at most so many seconds before it ends."""


class Verdict(IntEnum):
    """How a run is, as far as what it materialized is concerned."""

    RUNS = 0
    BAD = 1
    GOOD = 2


@dataclass(frozen=True, slots=True)
class _Made:
    storage_id: int
    run_id: str
    at: float


class AssetHistory:
    """The verbs are partitions, changed, of_run, has, verdicts, whole_evaluation, checked and there. It is made for one tick.

    `made` has the storage id of the newest materialization of each partition that `there` was asked about.
    """

    def __init__(self, instance: dg.DagsterInstance, key: dg.AssetKey, checks: Sequence[dg.AssetCheckKey]) -> None:
        self._instance = instance
        self._key = key
        self._checks = {check: _Evaluations(instance, check) for check in checks}
        self.made: dict[str, int] = {}
        self._run = cache(self._read_run)
        self._run_partitions = cache(self._read_run_partitions)

    def partitions(self) -> Mapping[str, int]:
        """The storage id of the newest materialization of each partition."""
        return self._instance.get_latest_storage_id_by_partition(self._key, _MATERIALIZATION)

    def changed(self, after_id: int) -> Iterator[str]:
        """The partitions of materializations behind a storage id."""
        cursor: str | None = None
        while True:
            wanted = dg.AssetRecordsFilter(self._key, after_storage_id=after_id)
            found = self._instance.fetch_materializations(wanted, limit=_SOME, cursor=cursor, ascending=True)
            yield from (record.partition_key for record in found.records if record.partition_key is not None)
            if not found.has_more:
                return
            cursor = found.cursor

    def of_run(self, run_id: str) -> frozenset[str]:
        """The partitions that a run materialized."""
        return self._run_partitions(run_id)

    def has(self, storage_id: int) -> bool:
        """Whether this materialization is still in the log. It is not after the asset was wiped, or its run deleted."""
        return bool(self._instance.fetch_materializations(dg.AssetRecordsFilter(self._key, storage_ids=[storage_id]), limit=1).records)

    def verdicts(self, run_ids: Iterable[str]) -> Mapping[str, Verdict]:
        """How these runs are. One that Dagster does not have any more is bad."""
        records = self._records(run_ids)
        bad = [one for one in records.values() if one.dagster_run.status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)]
        again = self._runs_again(bad)
        found = dict.fromkeys(run_ids, Verdict.BAD)
        for run_id, record in records.items():
            if record.dagster_run.status is dg.DagsterRunStatus.SUCCESS:
                found[run_id] = Verdict.GOOD
            elif not record.dagster_run.is_finished:
                found[run_id] = Verdict.RUNS
            elif run_id in again or self._failed_by_checks_alone(run_id):
                found[run_id] = Verdict.GOOD
        return found

    def whole_evaluation(self, check: dg.AssetCheckKey, since: float) -> int | None:
        """The newest evaluation that is about all partitions, by its id; None without one since that time."""
        return next((record.id for record in self._checks[check].since(since - _LONGEST_CHECK) if self._is_about_all(record)), None)

    def checked(self, since: float) -> Iterator[str]:
        """The partitions that checks of their own runs, or of their own, judged since that time."""
        for history in self._checks.values():
            for record in history.since(since - _LONGEST_CHECK):
                if record.event is not None and record.event.timestamp >= since - _SLACK:
                    partition = self._partition_of(record)
                    if partition is not None:
                        yield partition

    def there(self, partitions: Iterable[str]) -> tuple[Mapping[str, bool], Mapping[str, Verdict]]:
        """Whether these partitions are there, and the runs of their newest materializations that have not ended well."""
        wanted = sorted(set(partitions))
        made: dict[str, _Made] = {}
        for some in _batches(wanted):
            made.update(self._made(some))
        verdicts = self.verdicts({one.run_id for one in made.values() if one.run_id})
        for history in self._checks.values():
            history.read(self._oldest(made.values()), self._is_about_all)
        self.made.update((partition, one.storage_id) for partition, one in made.items())
        found = dict.fromkeys(wanted, False)
        for partition, one in made.items():
            ended_well = not one.run_id or verdicts[one.run_id] is Verdict.GOOD
            found[partition] = ended_well and all(self._passed(history, partition, one) for history in self._checks.values())
        return found, {run_id: verdict for run_id, verdict in verdicts.items() if verdict is not Verdict.GOOD}

    def _made(self, partitions: Sequence[str]) -> Iterator[tuple[str, _Made]]:
        latest = self._instance.get_latest_storage_id_by_partition(self._key, _MATERIALIZATION, set(partitions))
        if not latest:
            return
        wanted = dg.AssetRecordsFilter(self._key, storage_ids=sorted(latest.values()))
        for record in self._instance.fetch_materializations(wanted, limit=_SOME).records:
            if record.partition_key is not None:
                yield record.partition_key, _Made(record.storage_id, record.run_id, record.timestamp)

    def _oldest(self, made: Iterable[_Made]) -> float:
        """Since when evaluations may be about these: checks are planned when their run begins."""
        begun = [record.create_timestamp.timestamp() if record else one.at for one in made for record in (self._run(one.run_id),)]
        return min(begun, default=0.0) - _SLACK if begun else float("inf")

    def _passed(self, history: _Evaluations, partition: str, made: _Made) -> bool:
        about = [history.by_run.get(made.run_id) if made.run_id else None, history.by_target.get(made.storage_id)]
        about += [one for one in (history.by_partition.get(partition), history.about_all) if one is not None and _is_after(one, made)]
        newest = max((one for one in about if one is not None), key=lambda one: one.id, default=None)
        return newest is not None and newest.status.value == _PASSED

    def _is_about_all(self, record: Evaluated) -> bool:
        if record.partition is not None:
            return False
        if not record.run_id:
            return True
        run = self._run(record.run_id)
        return run is not None and _PARTITION_TAG not in run.dagster_run.tags and not self.of_run(record.run_id)

    def _partition_of(self, record: Evaluated) -> str | None:
        run = self._run(record.run_id)
        return record.partition or (run.dagster_run.tags.get(_PARTITION_TAG) if run is not None else None)

    def _failed_by_checks_alone(self, run_id: str) -> bool:
        failures = self._instance.get_records_for_run(run_id, of_type=dg.DagsterEventType.STEP_FAILURE, limit=_SOME).records
        errors = [one.event_log_entry.get_dagster_event().step_failure_data.error for one in failures]
        return bool(errors) and all(error is not None and error.cls_name == _CHECK_FAILED for error in errors)

    def _runs_again(self, bad: Sequence[dg.RunRecord]) -> frozenset[str]:
        """Those of these runs that somebody ran again, and it ended well."""
        roots = {_root(one.dagster_run) for one in bad}
        succeeded: dict[str, float] = {}
        for some in _batches(sorted(roots)):
            wanted = dg.RunsFilter(tags={_ROOT_TAG: some}, statuses=[dg.DagsterRunStatus.SUCCESS])
            for record in self._instance.get_run_records(wanted):
                root = _root(record.dagster_run)
                succeeded[root] = max(succeeded.get(root, 0.0), record.create_timestamp.timestamp())
        return frozenset(
            one.dagster_run.run_id for one in bad if succeeded.get(_root(one.dagster_run), 0.0) > one.create_timestamp.timestamp()
        )

    def _records(self, run_ids: Iterable[str]) -> Mapping[str, dg.RunRecord]:
        found: dict[str, dg.RunRecord] = {}
        for some in _batches(sorted(run_ids)):
            found.update((one.dagster_run.run_id, one) for one in self._instance.get_run_records(dg.RunsFilter(run_ids=some)))
        return found

    def _read_run(self, run_id: str) -> dg.RunRecord | None:
        return self._instance.get_run_record_by_id(run_id) if run_id else None

    def _read_run_partitions(self, run_id: str) -> frozenset[str]:
        found, cursor = set(), None
        while True:
            page = self._instance.get_records_for_run(run_id, cursor=cursor, of_type=_MATERIALIZATION, limit=_SOME)
            events = [record.event_log_entry.get_dagster_event() for record in page.records]
            found |= {event.partition for event in events if event.asset_key == self._key and event.partition is not None}
            if not page.has_more:
                return frozenset(found)
            cursor = page.cursor


class _Evaluations:
    """The evaluations of one check that ended, read as far back as somebody asks.

    The newest ones are kept by run, by partition, by the materialization that they judged, and about all partitions.
    """

    def __init__(self, instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> None:
        self._instance, self._check = instance, check
        self._read: list[Evaluated] = []
        self._next: int | None = None
        self._is_whole = False
        self.by_run: dict[str, Evaluated] = {}
        self.by_partition: dict[str, Evaluated] = {}
        self.by_target: dict[int, Evaluated] = {}
        self.about_all: Evaluated | None = None

    def since(self, since: float) -> Sequence[Evaluated]:
        """Those that were planned at that time or later, the newest first."""
        while not self._is_whole and (not self._read or self._read[-1].create_timestamp >= since):
            more = self._instance.event_log_storage.get_asset_check_execution_history(self._check, limit=_SOME, cursor=self._next)
            self._read += more
            self._next = more[-1].id if more else None
            self._is_whole = len(more) < _SOME
        return [one for one in self._read if one.create_timestamp >= since and one.status.value in _ENDED]

    def read(self, since: float, is_about_all: Callable[[Evaluated], bool]) -> None:
        """Sort them by what they are about."""
        for record in reversed(self.since(since)):
            target = record.evaluation.target_materialization_data if record.evaluation is not None else None
            if record.run_id and record.partition is None:
                self.by_run[record.run_id] = record
            if target is not None:
                self.by_target[target.storage_id] = record
            if record.partition is not None:
                self.by_partition[record.partition] = record
            elif is_about_all(record):
                self.about_all = record


def _is_after(record: Evaluated, made: _Made) -> bool:
    target = record.evaluation.target_materialization_data if record.evaluation is not None else None
    if target is not None:
        return target.storage_id >= made.storage_id
    return record.event is not None and record.event.timestamp >= made.at


def _root(run: dg.DagsterRun) -> str:
    return run.tags.get(_ROOT_TAG, run.run_id)


def _batches(values: Sequence[str]) -> Iterator[list[str]]:
    for first in range(0, len(values), _SOME):
        yield list(values[first : first + _SOME])
