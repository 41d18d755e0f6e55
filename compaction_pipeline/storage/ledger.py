"""Writes the ledger: what each attempt cost, in the transaction that ends it, and what the slots of optimizers did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import Connection, insert, select, update

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
)
from compaction_pipeline.core.capacity.slot_time import SlotTime, SlotTotals, passed
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.columns import StoredRow
from compaction_pipeline.storage.engine import upsert

_cost, _optimizer, _slots = schema.cost.c, schema.optimizer.c, schema.slot_time.c


def charge(connection: Connection, row: StoredRow, end_reason: EndReason, now: datetime, result: MergeResult | None) -> None:
    """Write what the attempt that held this task has cost until `now`, by day.

    A lost attempt ends when its worker was last heard of, which is when its lease was last renewed. While its worker has not reported, its
    row is provisional.
    """
    if row.started_at is None:
        # A row of a release that did not note when an attempt began. Nobody can say what it cost, and it must end all the same.
        return
    ended = now
    if end_reason is EndReason.LOST and row.lease_expires_at is not None:
        ended = min(now, row.lease_expires_at - LEASE)
    share, since = _share(connection, row.owner, row.attempt_id, row.started_at)
    used = believable(used_by(row.planned.work, result), share, now - row.started_at, now - since)
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
    """Write what a late report tells of an attempt that ended without one: its CPU and its memory. Its time stays as it was charged."""
    provisional = (_cost.attempt_id == result.attempt_id, _cost.is_provisional)
    rows = connection.execute(select(schema.cost).where(*provisional).order_by(_cost.day).with_for_update()).all()
    if not rows:
        return
    begun = datetime(rows[0].day.year, rows[0].day.month, rows[0].day.day, tzinfo=timezone.utc)
    attempt = schema.attempt.c
    started = connection.execute(select(attempt.started_at).where(attempt.attempt_id == result.attempt_id)).scalar() or begun
    share, since = _share(connection, rows[0].owner, rows[0].attempt_id, started)
    used = believable(told_by(result), share, now - started, now - since)
    parts = shares_of([row.slot_seconds for row in rows])
    for number, (row, part) in enumerate(zip(rows, parts, strict=True)):
        columns = _columns(part_of(used, part, is_last=number == len(rows) - 1, parts=parts))
        mine = (_cost.attempt_id == row.attempt_id, _cost.day == row.day)
        connection.execute(update(schema.cost).where(*mine).values(**columns, is_provisional=False))


def _share(connection: Connection, owner: str, attempt_id: str, otherwise: datetime) -> tuple[Share, datetime]:
    """What one slot of a worker has, and since when the worker is there: `otherwise` when it is no registered optimizer."""
    columns = (_optimizer.memory_bytes, _optimizer.parallelism, _optimizer.cores, _optimizer.started_at)
    found = connection.execute(select(*columns).where(_optimizer.optimizer_id == owner)).first()
    if found is None:
        attempt = schema.attempt.c
        return Share(connection.execute(select(attempt.reserve_bytes).where(attempt.attempt_id == attempt_id)).scalar()), otherwise
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
