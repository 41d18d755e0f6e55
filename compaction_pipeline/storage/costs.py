"""The CostStore: sums the ledger, and lets its old rows become sums of days and teams."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

from sqlalchemy import ColumnElement, case, delete, func, literal, select

from compaction_pipeline.core.capacity.calibration import RUNS, PastRun
from compaction_pipeline.core.capacity.costs import CostKey, CostSum, SlotSum
from compaction_pipeline.core.capacity.ledger import gb_hours
from compaction_pipeline.core.capacity.low_use import SlotUse
from compaction_pipeline.core.capacity.low_use_share import LONGEST_GAP, IdleDay, UseHours
from compaction_pipeline.core.capacity.own_work import OwnKind, OwnSum, OwnWork
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import Moment, StoredRow
from compaction_pipeline.storage.engine import batches, lock, reading, upsert, writing
from compaction_pipeline.storage.occupation import seconds_between
from compaction_pipeline.storage.sql_store import SqlStore

_cost, _day, _slots, _use = schema.cost.c, schema.cost_of_day.c, schema.slot_time.c, schema.optimizer_use.c
_own = schema.own_work.c
_KEYS: dict[CostKey, Any] = {
    CostKey.TEAM: _cost.team,
    CostKey.TABLE: _cost.identifier,
    CostKey.TYPE: _cost.type,
    CostKey.GROUP: _cost.queue,
    CostKey.DAY: _cost.day,
}
_OWN_KEYS: dict[CostKey, Any] = {
    CostKey.TEAM: _own.team,
    CostKey.TABLE: _own.identifier,
    CostKey.TYPE: _own.kind,
    CostKey.DAY: _own.day,
}
_OF_DAYS = {CostKey.TEAM: _day.team, CostKey.DAY: _day.day}
_SLOTS = ("starting", "held", "idle", "ending")


class SqlCostStore(SqlStore):
    """The ledger in the state database."""

    def sums(self, by: CostKey, first: date, last: date) -> Sequence[CostSum]:
        key = _KEYS[by]
        of_rows = select(key.label("key"), *_sums()).where(_cost.day >= first, _cost.day <= last).group_by(key)
        found = [_sum_of(row) for row in self._rows(of_rows)]
        if by in _OF_DAYS:
            key = _OF_DAYS[by]
            sums = [func.sum(column).label(column.name) for column in _day if column.name not in ("day", "team")]
            of_days = select(key.label("key"), *sums).where(_day.day >= first, _day.day <= last).group_by(key)
            found = _added(found, (_sum_of(row) for row in self._rows(of_days)))
        return sorted(found, key=lambda one: one.key if by is CostKey.DAY else (-one.slot_seconds, one.key))

    def slots(self, first: date, last: date) -> Sequence[SlotSum]:
        sums = [func.sum(getattr(_slots, name)).label(name) for name in _SLOTS]
        seconds = _slots.starting + _slots.held + _slots.idle + _slots.ending
        byte_seconds = func.sum(_slots.reserve_bytes * seconds).label("byte_seconds")
        query = select(_slots.queue, func.count(_slots.optimizer_id.distinct()).label("optimizers"), *sums, byte_seconds)
        rows = self._rows(query.where(_slots.day >= first, _slots.day <= last).group_by(_slots.queue).order_by(_slots.queue))
        return tuple(
            SlotSum(
                row.queue,
                row.optimizers,
                row.starting,
                row.held,
                row.idle,
                row.ending,
                None if row.byte_seconds is None else gb_hours(1, row.byte_seconds),
            )
            for row in rows
        )

    def idle(self, first: date, last: date) -> Sequence[IdleDay]:
        unheld = _slots.starting + _slots.idle + _slots.ending
        memory = func.sum(_slots.reserve_bytes * unheld).label("byte_seconds")
        of_slots = select(_slots.day, _slots.queue, func.sum(unheld).label("seconds"), memory).where(_slots.day.between(first, last))
        of_teams = select(_cost.day, _cost.queue, _cost.team, func.sum(_cost.slot_seconds).label("seconds"))
        spent: dict[tuple[date, str], dict[str, float]] = defaultdict(dict)
        for row in self._rows(of_teams.where(_cost.day.between(first, last)).group_by(_cost.day, _cost.queue, _cost.team)):
            spent[row.day, row.queue][row.team] = row.seconds
        rows = self._rows(of_slots.group_by(_slots.day, _slots.queue).order_by(_slots.day, _slots.queue))
        return tuple(
            IdleDay(
                row.queue,
                row.seconds,
                None if row.byte_seconds is None else gb_hours(1, row.byte_seconds),
                spent.get((row.day, row.queue), {}),
            )
            for row in rows
        )

    def add_own(self, work: Sequence[OwnWork]) -> None:
        with writing(self._engine) as connection:
            # One order for all writers, so that none waits for another that waits for it.
            for each in sorted(work, key=lambda one: (one.day, one.kind.value, one.table, one.team)):
                used = {"times": each.times, "seconds": each.seconds, "cpu_seconds": each.cpu_seconds}
                key = {"day": each.day, "kind": each.kind.value, "identifier": each.table, "team": each.team}
                row = upsert(connection, schema.own_work).values(**key, **used)
                added = {name: _own[name] + value for name, value in used.items()}
                connection.execute(row.on_conflict_do_update(index_elements=list(key), set_=added))

    def own(self, by: CostKey, first: date, last: date) -> Sequence[OwnSum]:
        key = _OWN_KEYS.get(by)
        if key is None:
            return ()
        sums = [func.sum(_own[name]).label(name) for name in ("times", "seconds", "cpu_seconds")]
        query = select(key.label("key"), _own.kind.label("kind"), *sums).where(_own.day.between(first, last)).group_by(key, _own.kind)
        found = [OwnSum(str(row.key), OwnKind(row.kind), int(row.times), row.seconds, row.cpu_seconds) for row in self._rows(query)]
        in_order = (lambda one: (one.key, one.kind)) if by is CostKey.DAY else (lambda one: (-one.seconds, one.key, one.kind))
        return sorted(found, key=in_order)

    def past(self, table: TableIdentifier | None, kind: CompactionType | None) -> Sequence[PastRun]:
        attempt = schema.attempt.c
        wanted = [_cost.end_reason == EndReason.MERGED, _cost.bytes_read.is_not(None)]
        wanted += [] if table is None else [_cost.identifier == str(table)]
        wanted += [] if kind is None else [_cost.type == kind]
        sums = [func.sum(_cost[name]).label(name) for name in ("bytes_read", "slot_seconds", "gb_hours")]
        sums += [func.sum(_cost.bytes_written).label("bytes_written"), func.max(_cost.expected_bytes).label("expected_bytes")]
        query = select(*sums).join(schema.attempt, attempt.attempt_id == _cost.attempt_id).where(*wanted)
        newest = query.group_by(_cost.attempt_id, attempt.ended_at).order_by(attempt.ended_at.desc(), _cost.attempt_id).limit(RUNS)
        return tuple(
            PastRun(int(row.bytes_read), row.slot_seconds, row.gb_hours, _whole(row.bytes_written), _whole(row.expected_bytes))
            for row in self._rows(newest)
        )

    def promised(self, team: str) -> float:
        task = schema.task.c
        (row,) = self._rows(select(func.sum(task.predicted_gb_hours).label("hours")).where(task.team == team, schema.PROMISED))
        return row.hours or 0.0

    def gb_hours(self, attempts: Collection[AttemptId]) -> Mapping[AttemptId, float]:
        query = select(_cost.attempt_id, func.sum(_cost.gb_hours).label("gb_hours")).group_by(_cost.attempt_id)
        found = [row for batch in batches(sorted(attempts)) for row in self._rows(query.where(_cost.attempt_id.in_(batch)))]
        return {AttemptId(row.attempt_id): row.gb_hours for row in found if row.gb_hours is not None}

    def uses(self, since: datetime, now: datetime) -> Mapping[str, SlotUse]:
        attempt, task = schema.attempt.c, schema.task.c
        began = case((attempt.started_at < since, literal(since, Moment())), else_=attempt.started_at)
        busy: dict[str, float] = defaultdict(float)
        # An attempt that runs has an Executing task, so the few that run are found without a look at old attempts.
        runs = (task.status == TaskStatus.EXECUTING, attempt.ended_at.is_(None))
        with reading(self._engine) as connection:
            for ended, kind in ((literal(now, Moment()), runs), (attempt.ended_at, (attempt.ended_at > since,))):
                seconds = func.sum(seconds_between(connection, began, ended)).label("seconds")
                query = select(attempt.owner, seconds).join(schema.task, task.task_id == attempt.task_id)
                for row in connection.execute(query.where(*kind).group_by(attempt.owner)):
                    busy[row.owner] += max(0.0, float(row.seconds))
            told = case((_cost.cpu_seconds.is_not(None), _cost.slot_seconds), else_=0.0)
            sums = (func.sum(told).label("told"), func.sum(_cost.cpu_seconds).label("cpu"), func.max(_cost.peak_memory_bytes).label("peak"))
            used = select(_cost.owner, *sums).join(schema.attempt, attempt.attempt_id == _cost.attempt_id)
            rows = {row.owner: row for row in connection.execute(used.where(attempt.ended_at > since).group_by(_cost.owner))}
        return {
            owner: SlotUse(seconds, rows[owner].told, rows[owner].cpu or 0.0, rows[owner].peak) if owner in rows else SlotUse(seconds)
            for owner, seconds in busy.items()
        }

    def spent(self, first: date, last: date) -> Mapping[tuple[str, str], float]:
        days = (_cost.day >= first, _cost.day <= last)
        query = select(_cost.queue, _cost.team, func.sum(_cost.slot_seconds).label("seconds")).where(*days)
        return {(row.queue, row.team): row.seconds for row in self._rows(query.group_by(_cost.queue, _cost.team))}

    def note_use(self, groups: Mapping[str, str], low: Collection[str], now: datetime) -> None:
        hour = now.replace(minute=0, second=0, microsecond=0)
        with writing(self._engine) as connection:
            # Two that look at once would both count the time since the last look.
            lock(connection, "costs")
            lately = select(_use.optimizer_id, func.max(_use.looked_at).label("at")).where(_use.hour >= hour - timedelta(hours=1))
            seen = {row.optimizer_id: row.at for row in connection.execute(lately.group_by(_use.optimizer_id))}
            for optimizer_id, group in sorted(groups.items()):
                passed = max(timedelta(0), min(now - seen.get(optimizer_id, now), LONGEST_GAP)).total_seconds()
                values = {"queue": group, "seconds": passed, "low_seconds": passed if optimizer_id in low else 0.0, "looked_at": now}
                row = upsert(connection, schema.optimizer_use).values(optimizer_id=optimizer_id, hour=hour, **values)
                added = {name: _use[name] + values[name] for name in ("seconds", "low_seconds")}
                changed = {"looked_at": now, **added}
                connection.execute(row.on_conflict_do_update(index_elements=["optimizer_id", "hour"], set_=changed))

    def use_hours(self, since: datetime) -> Sequence[UseHours]:
        sums = (func.sum(_use.seconds).label("seconds"), func.sum(_use.low_seconds).label("low"))
        query = select(_use.queue, *sums).where(_use.hour >= since.replace(minute=0, second=0, microsecond=0))
        return tuple(UseHours(row.queue, row.seconds / 3600, row.low / 3600) for row in self._rows(query.group_by(_use.queue)))

    def expire(self, rows_before: date, sums_before: date) -> None:
        with writing(self._engine) as connection:
            # Two that sum at once would both add the rows that only one of them removes.
            lock(connection, "costs")
            old = _cost.day < rows_before
            for row in connection.execute(select(_cost.day, _cost.team, *_sums()).where(old).group_by(_cost.day, _cost.team)).all():
                values = {column.name: getattr(row, column.name) or 0 for column in _day}
                summed = upsert(connection, schema.cost_of_day).values(values)
                added = {name: _day[name] + value for name, value in values.items() if name not in ("day", "team")}
                connection.execute(summed.on_conflict_do_update(index_elements=["day", "team"], set_=added))
            connection.execute(delete(schema.cost).where(old))
            midnight = datetime(rows_before.year, rows_before.month, rows_before.day, tzinfo=timezone.utc)
            connection.execute(delete(schema.optimizer_use).where(_use.hour < midnight))
            connection.execute(delete(schema.slot_time).where(_slots.day < rows_before))
            connection.execute(delete(schema.own_work).where(_own.day < rows_before))
            connection.execute(delete(schema.cost_of_day).where(_day.day < sums_before))


def _whole(number: Any) -> int | None:
    """A sum of whole numbers, which PostgreSQL returns as a decimal number."""
    return None if number is None else int(number)


def _sums() -> list[ColumnElement[Any]]:
    known = ("slot_seconds", "cpu_seconds", "overhead_cpu_seconds", "gb_hours", "bytes_read", "bytes_written")
    merged = case((_cost.end_reason == EndReason.MERGED, _cost.slot_seconds), else_=0.0)
    return [
        # An attempt over midnight has a row on each day.
        func.count(_cost.attempt_id.distinct()).label("attempts"),
        func.sum(merged).label("merged_slot_seconds"),
        *(func.sum(_cost[name]).label(name) for name in known),
        func.count(case((_cost.is_provisional, _cost.attempt_id)).distinct()).label("provisional"),
        func.count(case((_cost.is_cut, _cost.attempt_id)).distinct()).label("cut"),
    ]


def _sum_of(row: StoredRow) -> CostSum:
    key = row.key.isoformat() if isinstance(row.key, date) else getattr(row.key, "value", row.key)
    size = {name: None if (value := getattr(row, name)) is None else int(value) for name in ("bytes_read", "bytes_written")}
    return CostSum(
        key,
        int(row.attempts),
        row.slot_seconds,
        row.merged_slot_seconds,
        row.cpu_seconds,
        getattr(row, "overhead_cpu_seconds", None),
        row.gb_hours,
        size["bytes_read"],
        size["bytes_written"],
        getattr(row, "provisional", 0),
        getattr(row, "cut", 0),
    )


def _added(rows: Iterable[CostSum], sums: Iterable[CostSum]) -> list[CostSum]:
    """Both together, by their keys."""
    found = {one.key: one for one in rows}
    for one in sums:
        found[one.key] = one if one.key not in found else _both(found[one.key], one)
    return list(found.values())


def _both(one: CostSum, other: CostSum) -> CostSum:
    def known(name: str) -> Any:
        values = [value for each in (one, other) if (value := getattr(each, name)) is not None]
        return sum(values) if values else None

    return CostSum(one.key, *(known(name) for name in CostSum.__dataclass_fields__ if name != "key"))
