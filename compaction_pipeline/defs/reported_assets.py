"""Reports to the dependency center which partitions of assets are there, as Dagster's event log has it.

`compaction_pipeline.automation` exports it. Each tick looks at what changed since the last one, and at what changed in the ten minutes
before that, because Dagster stores events a moment after they got their number. What changed is judged as it is now, and is reported
under the number of the newest event that there was before the look. So a tick that is cut off, that comes twice or late, changes nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import dagster as dg

from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.periods import Calendar, Period
from compaction_pipeline.core.dependencies.center.subjects import ASSET, WINDOW, subject_of
from compaction_pipeline.core.dependencies.ready_time import Window
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import count_text
from compaction_pipeline.defs.asset_history import AssetHistory, Verdict
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.ready_ticks import BUDGET_SECONDS
from compaction_pipeline.defs.ready_windows import by_time, window_of
from compaction_pipeline.defs.resources import opened_services
from compaction_pipeline.defs.ticks import abandoned_when_dagster_ends
from compaction_pipeline.services.dependencies.center import DependencyCenter
from compaction_pipeline.services.dependencies.lead_center import KEPT
from compaction_pipeline.services.dependencies.reports import RunReport
from compaction_pipeline.settings import load_settings

MOST_ASSETS = 100
"""So many assets may stand in one sensor. Each costs a few questions to Dagster's event log in every tick."""
_OVERLAP = 600.0
_IN_FLIGHT = 10_000
"""Behind the first tick, so many numbers before the newest event are read again."""
_BAD_IS_WATCHED = timedelta(days=7).total_seconds()
"""So long a run that failed is watched for a run again of it."""
_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class ReportedAsset:
    """An asset whose partitions are reported, and the checks that must have passed."""

    key: dg.AssetKey
    partitions_def: dg.TimeWindowPartitionsDefinition
    checks: tuple[dg.AssetCheckKey, ...] = ()

    def subject(self, window: Window) -> str:
        """What the center calls the data of this time."""
        return f"{ASSET}={self.key.to_user_string()} && {WINDOW}={window}"

    def window(self, partition: str) -> Window | None:
        """The time of a partition; None for what is no partition of this definition, such as one of an older definition."""
        try:
            window = window_of(self.partitions_def, partition)
        except ValueError:
            return None
        same = self.partitions_def.get_partition_key_for_timestamp(window.start.timestamp())
        return window if same == partition else None


def reported_assets(
    assets: Sequence[dg.AssetsDefinition | dg.AssetSpec],
    *,
    blocking_checks: Sequence[dg.AssetCheckKey] = (),
    name: str = "reported_assets",
    interval_seconds: int | None = None,
    state_url: str | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """Make the sensor that tells the dependency center which partitions of these assets are there. Jobs wait for them by `asset: KEY`.

    `assets` are yours, at most 100, each with partitions by hour, day, week from Monday or month. An asset of another code location, or one
    that nothing here makes, is named by an `AssetSpec` with its `partitions_def`. The blocking checks of this code location are known;
    `blocking_checks` names those of others. `interval_seconds` is by default the setting `sensor_interval_seconds`, and `state_url` the
    setting of this name. Raises ConfigError for an asset without such partitions, which has no time that a job could wait for.
    """
    mine = [one for asset in assets for one in _reported(asset)]
    if not 0 < len(mine) <= MOST_ASSETS:
        raise ConfigError(f"reported_assets got {len(mine)} assets but takes 1 to {MOST_ASSETS}: make several sensors, each with a `name`")
    choices = Choices({} if state_url is None else {"state_url": state_url})
    every = interval_seconds or load_settings().sensor_interval_seconds

    @dg.sensor(
        name=name,
        minimum_interval_seconds=every,
        default_status=default_status,
        description=f"Tells the dependency center which partitions of {count_text(len(mine), 'asset')} are there. It starts no run.",
    )
    @abandoned_when_dagster_ends
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        gated = [_with_checks(one, context.repository_def, blocking_checks) for one in mine]
        with closing(opened_services(choices)) as services:
            return AssetTicks(services.center, context.instance, gated, services.clock()).tick(context.cursor)

    return evaluate


class _Read(NamedTuple):
    """The number of the newest event at a time."""

    number: int
    at: float


@dataclass(slots=True)
class _Place:
    """How far an asset was read: at a time before the overlap, and at a time in it.

    `newest` is the number of its newest materialization, and `open` has the runs that had not ended well, with their verdict and since when
    they are watched. `evaluated` has the last evaluation of each check that was about all partitions. `told` is what reports were numbered
    by, which never falls.
    """

    before: _Read
    mark: _Read
    newest: int = 0
    open: dict[str, list[float]] = field(default_factory=dict)
    evaluated: dict[str, int] = field(default_factory=dict)
    told: int = 0


def _place_of(stored: Sequence[Any]) -> _Place:
    before, mark, *more = stored
    return _Place(_Read(*before), _Read(*mark), *more)


class AssetTicks:
    """One verb: tick."""

    def __init__(self, center: DependencyCenter, instance: dg.DagsterInstance, assets: Sequence[ReportedAsset], now: datetime) -> None:
        self._center = center
        self._instance = instance
        self._assets = assets
        self._now = now
        # The numbers of another event log are no continuation of these.
        self._source = f"dagster {getattr(instance.run_storage, 'get_run_storage_id', str)()}"

    def tick(self, cursor: str | None) -> dg.SensorResult:
        """Report what changed. When the time of a tick is over, the next one goes on with the first asset that had no turn."""
        deadline = time.monotonic() + BUDGET_SECONDS
        state: dict[str, Any] = json.loads(cursor or "{}")
        places: dict[str, Any] = state.get("assets", {})
        names = [asset.key.to_user_string() for asset in self._assets]
        first = names.index(state["next"]) if state.get("next") in names else 0
        following, texts = None, []
        for number, asset in enumerate([*self._assets[first:], *self._assets[:first]]):
            name = asset.key.to_user_string()
            if number and time.monotonic() > deadline:
                following = name
                break
            place, reported = self._look(asset, _place_of(places[name]) if name in places else None)
            places[name] = astuple(place)
            if reported:
                there = sum(reported.values())
                texts.append(f"{name}: {count_text(there, 'partition')} there, {len(reported) - there} not")
        kept = {name: places[name] for name in names if name in places}
        return dg.SensorResult(skip_reason="; ".join(texts) or "nothing changed", cursor=json.dumps({"next": following, "assets": kept}))

    def _look(self, asset: ReportedAsset, place: _Place | None) -> tuple[_Place, Mapping[str, bool]]:
        now = self._now.timestamp()
        # Before anything else is asked: what is found is at least as new.
        highest = self._instance.event_log_storage.get_maximum_record_id() or 0
        history = AssetHistory(self._instance, asset.key, asset.checks)
        if place is None:
            place = _Place(_Read(max(highest - _IN_FLIGHT, 0), now), _Read(highest, now))
            wanted = set(history.partitions())
        else:
            # Where the newest events were deleted with their run, SQLite may give their numbers to others.
            place.before, place.mark = (one._replace(number=min(one.number, highest)) for one in (place.before, place.mark))
            wanted = self._changed(asset, history, place)
            gone = self._gone(asset, history) if now - place.mark.at >= _OVERLAP else frozenset()
            wanted |= gone
            # Where events are gone, no newer one has a number for it.
            place.told = max(place.told, highest) + 1 if gone else place.told
        place.told = highest if highest >= place.told else place.told + 1
        for check in asset.checks:
            newest = history.whole_evaluation(check, place.before.at)
            if newest is not None and place.evaluated.get(check.name) != newest:
                place.evaluated[check.name] = newest
                wanted |= set(history.partitions())
        windows = {partition: window for partition in wanted for window in (asset.window(partition),) if window is not None}
        windows = {partition: window for partition, window in windows.items() if window.end > self._now - KEPT}
        there, unended = history.there(windows)
        reports: list[RunReport] = []
        for partition, is_there in there.items():
            reports += _reports(asset.subject(windows[partition]), is_there, history.made.get(partition), place.told)
        for first in range(0, len(reports), _AT_ONCE):
            self._center.report_all(reports[first : first + _AT_ONCE], self._source)
        for run_id, verdict in unended.items():
            place.open.setdefault(run_id, [verdict, now])
        place.newest = max([place.newest, *history.made.values()])
        if now - place.mark.at >= _OVERLAP:
            place.before, place.mark = place.mark, _Read(highest, now)
        return place, there

    def _changed(self, asset: ReportedAsset, history: AssetHistory, place: _Place) -> set[str]:
        wanted = {*history.changed(place.before.number), *history.checked(place.before.at)}
        for run_id, verdict in history.verdicts(place.open).items():
            watched = place.open[run_id]
            if verdict is not Verdict(int(watched[0])):
                wanted |= history.of_run(run_id)
            watched[0] = verdict
            is_over = verdict is Verdict.BAD and self._now.timestamp() - watched[1] > _BAD_IS_WATCHED
            if verdict is Verdict.GOOD or is_over:
                del place.open[run_id]
        if place.newest and not history.has(place.newest):
            # It was wiped. So nobody knows which of them were there.
            wanted |= {*asset.partitions_def.get_partition_keys(current_time=self._now), *history.partitions()}
            place.newest = 0
        return wanted

    def _gone(self, asset: ReportedAsset, history: AssetHistory) -> frozenset[str]:
        """The partitions that this sensor told to be there, and that no event speaks of: their runs were deleted."""
        windows = self._center.assets_there(asset.key.to_user_string(), self._source)
        told = {asset.partitions_def.get_partition_key_for_timestamp(window.start.timestamp()) for window in windows}
        return frozenset(told) - set(history.partitions())


def _reports(subject: str, is_there: bool, made: int | None, told: int) -> Iterator[RunReport]:
    """What is told of one partition. What was there before its newest materialization is not any more, whatever this became.

    The number is even for what is not there, because the run of a materialization may end without a newer event.
    """
    if is_there and made is not None:
        yield RunReport(subject, InstanceState.FAILED, number=2 * made)
    yield RunReport(subject, InstanceState.SUCCEEDED if is_there else InstanceState.FAILED, number=2 * told + is_there)


def _reported(asset: dg.AssetsDefinition | dg.AssetSpec) -> Iterator[ReportedAsset]:
    for spec in asset.specs if isinstance(asset, dg.AssetsDefinition) else (asset,):
        what = f"reported_assets, {spec.key.to_user_string()}"
        if spec.partitions_def is None:
            raise ConfigError(
                f"{what}: it has no partitions, so it has no time that a job could wait for; let the job wait by `job: NAME` for who makes "
                "it, and report that"
            )
        definition = _as_periods(by_time(spec.partitions_def, what), what)
        one = ReportedAsset(spec.key, definition)
        window = one.window(definition.get_partition_key_for_timestamp(definition.start.timestamp()))
        assert window is not None
        subject_of(one.subject(window))
        yield one


def _as_periods(definition: dg.TimeWindowPartitionsDefinition, what: str) -> dg.TimeWindowPartitionsDefinition:
    """The definition, when its partitions are the periods of a calendar. Raises ConfigError otherwise: no job could wait for one."""
    window = window_of(definition, definition.get_partition_key_for_timestamp(definition.start.timestamp()))
    for period in Period:
        calendar = Calendar(period, definition.timezone)
        at = calendar.at(window.start)
        if (calendar.start(at), calendar.end(at)) == (window.start, window.end):
            return definition
    week = window.end - window.start == timedelta(days=7)
    hint = "Dagster's weeks begin on Sunday: give the definition day_offset=1" if week else "give it partitions by hour, day, week or month"
    raise ConfigError(
        f"{what}: its partitions are like {window}, which is no hour, day, week from Monday on, or month in {definition.timezone}, so no "
        f"job can wait for one; {hint}"
    )


def _with_checks(asset: ReportedAsset, repository: dg.RepositoryDefinition | None, more: Iterable[dg.AssetCheckKey]) -> ReportedAsset:
    """The asset with its blocking checks: those that its code location declares, and those that the user named."""
    graph = repository.asset_graph if repository is not None else None
    declared = [key for key in graph.asset_check_keys if graph.get_check_spec(key).blocking] if graph is not None else []
    keys = {key for key in (*declared, *more) if key.asset_key == asset.key}
    return ReportedAsset(asset.key, asset.partitions_def, tuple(sorted(keys, key=lambda key: key.name)))
