"""Texts and tables of what upkeep did, for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import titled_table
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline.core.words import count_text, time_text
from compaction_pipeline.services.upkeep.expire_snapshots import Expired, ExpiredStore


def expired_lines(expired: Expired, dry_run: bool) -> Iterator[str]:
    """What a run did or would do: a line for each earlier record that it went on with, and one for each store."""
    for record in expired.earlier:
        yield f"{record.store}, record {record.record_id}: {record.summary}"
    for store in expired.stores:
        yield f"{store.store}: {_store_text(store, dry_run)}"


def _store_text(store: ExpiredStore, dry_run: bool) -> str:
    if store.expiry is None:
        return f"nothing expires: {store.refusal}"
    kept = count_text(len(store.expiry.kept), "snapshot")
    if not store.expiry.is_due:
        at = store.expiry.next_look
        return f"nothing is old enough; {kept} stay" + ("" if at is None else f", and time may change that after {time_text(at)}")
    if store.record is None:
        refs = [f"ref {name!r}: {why}" for name, why in sorted(store.expiry.dropped_refs.items())]
        return "; ".join([f"{count_text(len(store.expiry.removed), 'snapshot')} would be removed, {kept} stay", *refs])
    if store.record.status is not UpkeepStatus.REMOVED:
        return store.record.summary
    return (
        f"{store.record.summary} until the grace time is over ('compaction.expire.grace'); run this again then, or let the schedule do it "
        f"(record {store.record.record_id})"
    )


def kept_table(expired: Expired) -> Table:
    """One line for each snapshot that stays, with the reason."""
    table = titled_table("snapshots that stay", "store", "snapshot", "why", "at least until")
    for store in expired.stores:
        for snapshot_id, stay in store.expiry.kept.items() if store.expiry is not None else ():
            table.add_row(escape(str(store.store)), str(snapshot_id), escape(stay.reason), time_text(stay.until) if stay.until else "")
    return table


def upkeep_table(records: Iterable[UpkeepRecord]) -> Table:
    """One line for each record, in the order given."""
    table = titled_table("upkeep", "record", "at", "table", "status", "what")
    for record in records:
        table.add_row(
            record.record_id, time_text(record.created_at), escape(str(record.store)), record.status.value, escape(record.summary)
        )
    return table
