"""The ticks of the sensors of readiness: which partitions of external assets become materialized, which are taken back, which runs start.

What was materialized is read from Dagster, and what was taken back from the last evaluation of the check. So neither a tick that is cut off
nor a cursor that is lost makes a second event.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeVar

import dagster as dg

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.dependencies.ready_time import Window, instant_text
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text, duration_text
from compaction_pipeline.defs.ready_windows import Done, page, window_of
from compaction_pipeline.ending.dagster_dev import Abandoned, abandoned_when

T = TypeVar("T")

CHECK = "still_ready"
BUDGET_SECONDS = 20.0
"""The time of one tick, of which one table among several gets half. Dagster allows 60 s, but all sensors share the daemon's threads."""
MOST_EVENTS = 500
"""A tick stores at most so many events. The event log takes about 100 a second."""
LEAST_RUNS = 20
RUNS_A_SECOND = 5
"""A tick asks for at most so many runs for each second of the sensor's interval, because Dagster takes about that long to take them."""
FIGURES_EVERY_TICKS = 6
"""The plots get a point in every sixth tick at most: with 30 s, the newest hundred points are those of five hours."""
_HISTORY = 10
_WITHDRAWN = "withdrawn"


@dataclass(frozen=True, slots=True)
class Source:
    """A table that is waited for, with the partitions of a user's definition. `key` is that of the external asset."""

    table: TableIdentifier
    partitions_def: dg.TimeWindowPartitionsDefinition
    key: dg.AssetKey

    @property
    def figures(self) -> dg.AssetKey:
        return dg.AssetKey([*self.key.path, "figures"])

    @property
    def check(self) -> dg.AssetCheckKey:
        return dg.AssetCheckKey(self.key, CHECK)

    def keys(self, now: datetime) -> Sequence[str]:
        """The partitions that there are now, in the order of their time."""
        return self.partitions_def.get_partition_keys(current_time=now)

    def window(self, key: str) -> Window:
        return window_of(self.partitions_def, key)


@dataclass(slots=True)
class _Place:
    """What the cursor keeps of one table: where its older partitions go on, and what the last point of the plots was made of."""

    walk: str | None = None
    watermark: str | None = None
    figures_at: float = 0.0


@dataclass(slots=True)
class _Look:
    """What a tick found out about one table."""

    source: Source
    answers: Mapping[str, Readiness]
    told: frozenset[str]
    withdrawn: frozenset[str]
    """Those that were taken back before this tick."""
    has_check: bool
    walk: str | None
    new: list[str] = field(default_factory=list)

    def judge(self, most: int) -> None:
        """Choose which partitions become materialized now."""
        ready = [key for key, answer in self.answers.items() if answer.ready and (key not in self.told or key in self.withdrawn)]
        self.new = ready[:most]

    @property
    def withdrawn_now(self) -> frozenset[str]:
        lost = {key for key, answer in self.answers.items() if not answer.ready and key in self.told}
        return (self.withdrawn - set(self.new)) | lost

    @property
    def waiting(self) -> Sequence[Readiness]:
        """The answers of partitions that are not ready and never were, in the order of their time."""
        return [answer for key, answer in self.answers.items() if not answer.ready and key not in self.told]


def ready_tick(
    services: Services, instance: dg.DagsterInstance, sources: Sequence[Source], cursor: str | None, every: int
) -> dg.SensorResult:
    """Materialize what became ready, and judge the checks.

    One of several tables is asked only when half of the budget is left, and has so much time to answer. The next tick goes on with the
    first table that was not asked. So neither a slow table nor one that does not answer keeps another from its turn.
    """
    deadline = time.monotonic() + BUDGET_SECONDS
    share = BUDGET_SECONDS / 2 if len(sources) > 1 else BUDGET_SECONDS
    state = json.loads(cursor or "{}")
    # A cursor of an older version has another value before the last one.
    places = {short: _Place(values[0], values[1], values[-1]) for short, values in state.get("tables", {}).items()}
    first = next((i for i, source in enumerate(sources) if _short(source.key) == state.get("next")), 0)
    order = [*sources[first:], *sources[:first]]
    events: list[dg.AssetMaterialization | dg.AssetCheckEvaluation] = []
    texts: list[str] = []
    following = None
    for number, source in enumerate(order):
        if number and (deadline - time.monotonic() < share or len(events) >= MOST_EVENTS):
            following = _short(source.key)
            break
        place = places.setdefault(_short(source.key), _Place())
        try:
            look = within(share, lambda source=source, place=place: _look(services, instance, source, place.walk))  # type: ignore[misc]
        except Abandoned:
            texts.append(f"{source.table} did not answer in {share:.0f} s")
            continue
        except CompactionError as error:
            texts.append(str(error))
            continue
        if look is None:
            texts.append(f"{source.key.to_user_string()} has no partition yet")
            continue
        look.judge(MOST_EVENTS - len(events))
        place.walk = look.walk
        events += _events(look)
        events += _figure_events(look, place, services.clock(), every)
        texts.append(_text(look))
    known = {_short(source.key) for source in sources}
    tables = {short: [at.walk, at.watermark, at.figures_at] for short, at in places.items() if short in known}
    return dg.SensorResult(skip_reason="; ".join(texts), cursor=json.dumps({"next": following, "tables": tables}), asset_events=events)


def check_now(services: Services, instance: dg.DagsterInstance, source: Source) -> dg.AssetCheckEvaluation:
    """Judge the check of one table now. What becomes materialized is left to the sensor."""
    look = _look(services, instance, source, None)
    if look is None:
        return _evaluation(source, frozenset(), {})
    return _evaluation(source, look.withdrawn_now, look.answers)


def most_runs(every: int) -> int:
    """For how many runs a tick of a sensor with an interval of so many seconds asks at most."""
    return max(LEAST_RUNS, RUNS_A_SECOND * every)


def job_tick(services: Services, source: Source, cursor: str | None, most: int) -> dg.SensorResult:
    """Ask for a run of each partition that is ready and was not asked for, for at most so many. A run_key guards what the cursor cannot."""
    state = json.loads(cursor or "{}")
    done = Done(state.get("done", ()))
    now = services.clock()
    pending = [key for key in source.keys(now) if not done.has(source.window(key))]
    asked, walk = page(pending, state.get("walk"))
    if not asked:
        return dg.SensorResult(skip_reason=f"{source.table}: a run was asked for of every partition so far", cursor=cursor)
    try:
        answers = within(BUDGET_SECONDS, lambda: _answers(services, source, asked))
    except Abandoned:
        return dg.SensorResult(skip_reason=f"{source.table} did not answer in {BUDGET_SECONDS:.0f} s", cursor=cursor)
    except CompactionError as error:
        return dg.SensorResult(skip_reason=str(error), cursor=cursor)
    ready = [key for key, answer in answers.items() if answer.ready]
    waiting = [answer for answer in answers.values() if not answer.ready]
    for key in ready[:most]:
        done.add(source.window(key))
    # While there are more than a tick may ask for, the walk stands, so that the oldest go first.
    walk = state.get("walk") if len(ready) > most else walk
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=f"{source.table}/{key}", partition_key=key) for key in ready[:most]],
        skip_reason=None if ready else _waiting_text(source, waiting),
        cursor=json.dumps({"done": done.ranges, "walk": walk}),
    )


def within(seconds: float, work: Callable[[], T]) -> T:
    """The result of `work`, or its error. Raises Abandoned after so many seconds; the work then ends in a thread of its own."""
    over = threading.Event()
    timer = threading.Timer(max(seconds, 0.0), over.set)
    timer.daemon = True
    timer.start()
    try:
        return abandoned_when(over, work)
    finally:
        timer.cancel()


def _answers(services: Services, source: Source, keys: Sequence[str]) -> Mapping[str, Readiness]:
    windows = [source.window(key) for key in keys]
    return dict(zip(keys, services.read_readiness.windows(source.table, windows), strict=True))


def _look(services: Services, instance: dg.DagsterInstance, source: Source, walk: str | None) -> _Look | None:
    """Ask about one table; None when its definition has no partition yet."""
    keys = source.keys(services.clock())
    asked, following = page(keys, walk)
    if not asked:
        return None
    withdrawn = _withdrawn(instance, source)
    # What was taken back is asked about in every tick.
    before = withdrawn or frozenset()
    late = [key for key in keys if key in before and key not in set(asked)]
    told = frozenset(instance.get_materialized_partitions(source.key))
    return _Look(source, _answers(services, source, [*late, *asked]), told, before & set(keys), withdrawn is not None, following)


def _withdrawn(instance: dg.DagsterInstance, source: Source) -> frozenset[str] | None:
    """The partitions that the last evaluation of the check named; None when it was never evaluated."""
    for record in instance.event_log_storage.get_asset_check_execution_history(source.check, limit=_HISTORY):
        if record.status.value not in ("SUCCEEDED", "FAILED") or record.event is None or record.event.dagster_event is None:
            continue
        said = record.event.dagster_event.asset_check_evaluation_data.metadata.get(_WITHDRAWN)
        return frozenset(map(str, said.value)) if said is not None and isinstance(said.value, (list, tuple)) else frozenset()
    return None


def _events(look: _Look) -> list[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
    """The materializations of a table, and behind them the evaluation: Dagster takes it for one of the newest of them."""
    source = look.source
    events: list[dg.AssetMaterialization | dg.AssetCheckEvaluation] = [
        dg.AssetMaterialization(source.key, partition=key, description=look.answers[key].why, metadata=_metadata(look.answers[key]))
        for key in look.new
    ]
    withdrawn = look.withdrawn_now
    if look.new or withdrawn != look.withdrawn or (look.told and not look.has_check):
        events.append(_evaluation(source, withdrawn, look.answers))
    return events


def _metadata(answer: Readiness) -> dict[str, dg.MetadataValue]:
    metadata: dict[str, dg.MetadataValue] = {
        "window": dg.MetadataValue.text(answer.what),
        "rule": dg.MetadataValue.text(answer.rule),
        "snapshots": dg.MetadataValue.text(", ".join(str(head) for head in answer.heads if head is not None) or "none"),
    }
    if answer.window is not None:
        behind = max((answer.at - answer.window.end).total_seconds(), 0.0)
        metadata["ready_after_seconds"] = dg.MetadataValue.float(round(behind, 1))
    if answer.watermark is not None:
        metadata["watermark"] = dg.MetadataValue.timestamp(answer.watermark)
    if answer.withdrawals:
        metadata["withdrawals_count"] = dg.MetadataValue.int(answer.withdrawals)
    return metadata


def _evaluation(source: Source, withdrawn: frozenset[str], answers: Mapping[str, Readiness]) -> dg.AssetCheckEvaluation:
    keys = sorted(withdrawn)
    why = next((answers[key].why for key in keys if key in answers), "")
    text = (
        f"{count_text(len(keys), 'partition')} of {source.table} no longer ready, e.g. {keys[0]}{f': {why}' if why else ''}"
        if keys
        else "every partition that is materialized here is ready"
    )
    return dg.AssetCheckEvaluation(
        asset_key=source.key,
        check_name=CHECK,
        passed=not keys,
        metadata={_WITHDRAWN: dg.MetadataValue.json(keys), "withdrawn_count": dg.MetadataValue.int(len(keys))},
        severity=dg.AssetCheckSeverity.ERROR,
        description=text,
        blocking=True,
    )


def _figure_events(look: _Look, place: _Place, now: datetime, every: int) -> list[dg.AssetMaterialization]:
    """A point of the plots, when it is time for one."""
    marked = next((answer for answer in look.answers.values() if answer.watermark is not None), None)
    watermark = marked.watermark if marked is not None else None
    text = instant_text(watermark) if watermark is not None else None
    moved = text != place.watermark
    place.watermark = text
    waiting = [answer for answer in look.waiting if answer.window is not None and answer.window.end <= now]
    is_news = moved or bool(waiting or look.new) or look.withdrawn_now != look.withdrawn
    # A tick comes a little later than the one before by its own length, so the last one may be almost due.
    if not is_news or now.timestamp() - place.figures_at < (FIGURES_EVERY_TICKS - 0.5) * every:
        return []
    place.figures_at = now.timestamp()
    metadata: dict[str, dg.MetadataValue] = {
        "waiting_partitions_count": dg.MetadataValue.int(len(waiting)),
        "ready_partitions_count": dg.MetadataValue.int(len(look.told | set(look.new)) - len(look.withdrawn_now)),
        "withdrawn_partitions_count": dg.MetadataValue.int(len(look.withdrawn_now)),
    }
    if waiting and waiting[0].window is not None:
        metadata["longest_wait_seconds"] = dg.MetadataValue.float(round((now - waiting[0].window.end).total_seconds(), 1))
        metadata["waits_for"] = dg.MetadataValue.text(f"{waiting[0].what}: {waiting[0].why}")
    if marked is not None and watermark is not None:
        stands = timedelta(0) if marked.watermark_since is None else now - marked.watermark_since
        metadata["watermark"] = dg.MetadataValue.timestamp(watermark)
        metadata["watermark_lag_seconds"] = dg.MetadataValue.float(round((now - watermark).total_seconds(), 1))
        metadata["watermark_stands_seconds"] = dg.MetadataValue.float(round(max(stands.total_seconds(), 0.0), 1))
    return [dg.AssetMaterialization(look.source.figures, description=_text(look), metadata=metadata)]


def _text(look: _Look) -> str:
    parts = []
    if look.new:
        parts.append(f"{count_text(len(look.new), 'partition')} of {look.source.table} became ready, the newest is {look.new[-1]}")
    if look.withdrawn_now:
        parts.append(f"{count_text(len(look.withdrawn_now), 'partition')} taken back, e.g. {min(look.withdrawn_now)}")
    return "; ".join([*parts, _waiting_text(look.source, look.waiting)])


def _waiting_text(source: Source, waiting: Sequence[Readiness]) -> str:
    if not waiting:
        return f"{source.table}: no partition waits"
    first = waiting[0]
    since = ""
    if first.window is not None and first.at > first.window.end:
        since = f" for {duration_text(timedelta(seconds=round((first.at - first.window.end).total_seconds())))}"
    return f"{source.table}: {count_text(len(waiting), 'partition')} waiting, the first{since} for {first.what}: {first.why}"


def _short(key: dg.AssetKey) -> str:
    """The key in the cursor, 10 hex digits. Dagster stores the cursor with every tick, so it is kept small."""
    return sha256(key.to_user_string().encode()).hexdigest()[:10]
