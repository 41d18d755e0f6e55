"""Writes the ledger: what each attempt cost, in the transaction that ends it, and what the slots of optimizers did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection, Integer, cast, func, insert, select, update

from compaction_pipeline.core.capacity.ledger import (
    MOST_BYTES,
    Share,
    Used,
    believable,
    charges,
    gb_hours,
    part_of,
    shares_of,
    told_by,
    used_by,
    used_until_now,
)
from compaction_pipeline.core.capacity.slot_time import SlotTime, SlotTotals, passed
from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import batches, upsert

_cost, _optimizer, _slots, _attempt = schema.cost.c, schema.optimizer.c, schema.slot_time.c, schema.attempt.c


def charge(connection: Connection, row: StoredRow, end_reason: EndReason, now: datetime, result: MergeResult | None) -> None:
    """Write what the attempt that held this task has cost until `now`, by day.

    A lost attempt ends when its worker was last heard of, which is when its lease was last renewed. While its worker has not reported, its
    row is provisional: it says what the attempt told while it ran.
    """
    if row.started_at is None:
        # A row of a release that did not note when an attempt began. Nobody can say what it cost, and it must end all the same.
        return
    ended = now
    if end_reason is EndReason.LOST and row.lease_expires_at is not None:
        ended = min(now, row.lease_expires_at - LEASE)
    share, since = _share(connection, row.owner, row.attempt_id, row.started_at)
    used = believable(used_by(row.planned.work, result), share, now - row.started_at, now - since)
    if None in (used.cpu_seconds, used.peak_memory_bytes):
        so_far = select(_attempt.used_so_far).where(_attempt.attempt_id == row.attempt_id)
        used = used.or_so_far(connection.execute(so_far).scalar())
    of_attempt = {
        "attempt_id": row.attempt_id,
        "identifier": row.identifier,
        "team": row.team,
        "queue": row.queue,
        "type": row.planned.work.type,
        "owner": row.owner,
        "end_reason": end_reason,
        # Of an attempt that its optimizer no longer names, the server writes the result itself.
        "is_provisional": result is None or end_reason is EndReason.LOST,
        # Each row of the attempt holds all of them.
        "expected_bytes": min(row.planned.work.predicted_bytes, MOST_BYTES),
    }
    rows = [
        {
            **of_attempt,
            "day": each.day,
            "slot_seconds": each.slot_seconds,
            "gb_hours": None if share.reserve_bytes is None else gb_hours(share.reserve_bytes, each.slot_seconds),
            **_columns(each.used),
        }
        for each in charges(row.started_at, ended, used)
    ]
    connection.execute(insert(schema.cost), rows)


def correct(connection: Connection, result: MergeResult, now: datetime) -> None:
    """Write what a late report tells of an attempt that ended without one: its CPU and its memory. Its time stays as it was charged.

    What the report does not tell stays as it was told while the attempt ran.
    """
    provisional = (_cost.attempt_id == result.attempt_id, _cost.is_provisional)
    rows = connection.execute(select(schema.cost).where(*provisional).order_by(_cost.day).with_for_update()).all()
    if not rows:
        return
    begun = datetime(rows[0].day.year, rows[0].day.month, rows[0].day.day, tzinfo=timezone.utc)
    known = connection.execute(select(_attempt.started_at, _attempt.used_so_far).where(_attempt.attempt_id == result.attempt_id)).first()
    started = begun if known is None else known.started_at
    share, since = _share(connection, rows[0].owner, rows[0].attempt_id, started)
    used = believable(told_by(result), share, now - started, now - since).or_so_far(None if known is None else known.used_so_far)
    parts = shares_of([row.slot_seconds for row in rows])
    for number, (row, part) in enumerate(zip(rows, parts, strict=True)):
        columns = _columns(part_of(used, part, is_last=number == len(rows) - 1, parts=parts))
        mine = (_cost.attempt_id == row.attempt_id, _cost.day == row.day)
        connection.execute(update(schema.cost).where(*mine).values(**columns, is_provisional=False))


def note_used(connection: Connection, told: Mapping[AttemptId, UsedSoFar], now: datetime) -> None:
    """Keep what running attempts have used until now, as their workers tell it, cut at what is possible."""
    for batch in batches(sorted(told)):
        running = select(_attempt.attempt_id, _attempt.owner, _attempt.started_at, _attempt.used_so_far)
        for row in connection.execute(running.where(_attempt.attempt_id.in_(batch), _attempt.ended_at.is_(None))).all():
            share, _ = _share(connection, row.owner, row.attempt_id, row.started_at)
            used = used_until_now(told[row.attempt_id], row.used_so_far, share, now - row.started_at)
            connection.execute(update(schema.attempt).where(_attempt.attempt_id == row.attempt_id).values(used_so_far=used))


def used_by_ended(connection: Connection, attempt_ids: Sequence[AttemptId]) -> Mapping[AttemptId, Used]:
    """Return what these attempts were charged for, on all days. Those without a row of the ledger are left out."""
    sums = [func.sum(_cost[name]).label(name) for name in ("cpu_seconds", "overhead_cpu_seconds", "bytes_read", "bytes_written")]
    highest = [func.max(_cost.peak_memory_bytes).label("peak"), func.max(cast(_cost.is_cut, Integer)).label("is_cut")]
    found: dict[AttemptId, Used] = {}
    for batch in batches(attempt_ids):
        of_attempts = select(_cost.attempt_id, *sums, *highest).where(_cost.attempt_id.in_(batch)).group_by(_cost.attempt_id)
        for row in connection.execute(of_attempts):
            read, written = (None if total is None else int(total) for total in (row.bytes_read, row.bytes_written))
            found[row.attempt_id] = Used(row.cpu_seconds, row.overhead_cpu_seconds, row.peak, read, written, bool(row.is_cut))
    return found


def _share(connection: Connection, owner: str, attempt_id: str, otherwise: datetime) -> tuple[Share, datetime]:
    """What one slot of a worker has, and since when the worker is there: `otherwise` when it is no registered optimizer."""
    columns = (_optimizer.memory_bytes, _optimizer.parallelism, _optimizer.cores, _optimizer.started_at)
    found = connection.execute(select(*columns).where(_optimizer.optimizer_id == owner)).first()
    if found is None:
        return Share(connection.execute(select(_attempt.reserve_bytes).where(_attempt.attempt_id == attempt_id)).scalar()), otherwise
    return Share(found.memory_bytes // found.parallelism or None, found.cores), min(found.started_at, otherwise)


def _columns(used: Used) -> Mapping[str, object]:
    return {
        "cpu_seconds": used.cpu_seconds,
        "overhead_cpu_seconds": used.overhead_cpu_seconds,
        "peak_memory_bytes": used.peak_memory_bytes,
        "bytes_read": used.bytes_read,
        "bytes_written": used.bytes_written,
        "is_cut": used.is_cut,
    }


def note_start(connection: Connection, optimizer: Optimizer, now: datetime) -> None:
    """Write that the slots of an optimizer were starting from the moment when its container was asked for it until now."""
    seconds = optimizer.parallelism * max((now - optimizer.started_at).total_seconds(), 0.0)
    _add(connection, optimizer, now, SlotTime(starting=seconds))


def note_slots(connection: Connection, optimizer: StoredRow, now: datetime, told: SlotTotals) -> Mapping[str, Any]:
    """Write what the slots of an optimizer did since its last touch. `optimizer` is its row as it was then, locked.

    Return the columns of the row that hold the totals from now on. What passed is charged to the day of this touch.
    """
    before = SlotTotals(optimizer.held_seconds or 0.0, optimizer.idle_seconds or 0.0)
    between = max(now - optimizer.touched_at, timedelta(0))
    # What a touch tells too much for now, because another one was late on its way, counts at the next touch: totals repeat it.
    totals = before.grown_to(told, optimizer.parallelism * between.total_seconds())
    spent = passed(optimizer.parallelism, between, before, totals, has_polled=optimizer.first_polled_at is not None)
    _add(connection, optimizer, now, spent)
    return {"held_seconds": totals.held, "idle_seconds": totals.idle}


def _add(connection: Connection, optimizer: Optimizer | StoredRow, now: datetime, spent: SlotTime) -> None:
    names = ("starting", "held", "idle", "ending")
    row = upsert(connection, schema.slot_time).values(
        optimizer_id=optimizer.optimizer_id,
        day=now.astimezone(timezone.utc).date(),
        queue=optimizer.group,
        reserve_bytes=optimizer.memory_bytes // optimizer.parallelism or None,
        **{name: getattr(spent, name) for name in names},
    )
    added = {name: getattr(_slots, name) + getattr(spent, name) for name in names}
    connection.execute(row.on_conflict_do_update(index_elements=["optimizer_id", "day"], set_=added))
