"""Texts and tables of what upkeep did, for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import titled_table
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.upkeep.commit_record import UpkeepCommit
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline.core.upkeep.orphan_looks import Cleaned, OrphanDeletion
from compaction_pipeline.core.upkeep.orphan_rules import Standing
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, OrphanList
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline.core.upkeep.works import WORK_IN_WORDS, UpkeepWork
from compaction_pipeline.core.words import bytes_text, count_text, duration_text, time_text

if TYPE_CHECKING:
    from compaction_pipeline.services.upkeep.commit_upkeep import StoreDone
    from compaction_pipeline.services.upkeep.expire_snapshots import Expired, ExpiredStore

MOST_ORPHANS = 50
"""The most orphan files that a person is shown."""

_STANDINGS = {
    Standing.REFERENCED: "metadata names it",
    Standing.OURS: "a task or a record of this program may need it",
    Standing.YOUNG: "a writer may be about to commit it",
    Standing.STRANGE: "no writer of this table seems to have made it",
    Standing.MISMATCH: "it may be a file that metadata names in another way",
    Standing.ORPHAN: "nobody needs it, as far as is known",
}
_UNANSWERED = (
    "An attempt got no answer. The next run finds the table as it is then. The files of an attempt that did not land stay until orphan "
    "files are removed."
)


def expired_lines(expired: Expired, dry_run: bool) -> Iterator[str]:
    """What a run did or would do: a line for each earlier record that it went on with, and one for each store."""
    for record in expired.earlier:
        yield f"{record.store}, record {record.record_id}: {record.summary}"
    for store in expired.stores:
        yield f"{store.store}: {_store_text(store, dry_run)}"
        yield from (f"warning: {consumer.problem}" for consumer in store.lost_consumers)


def _store_text(store: ExpiredStore, dry_run: bool) -> str:
    if store.expiry is None:
        return f"nothing expires: {store.refusal}"
    count = len(store.expiry.kept)
    kept = f"{count_text(count, 'snapshot')} {'stays' if count == 1 else 'stay'}"
    if not store.expiry.is_due:
        at = store.expiry.next_look
        return f"nothing is old enough; {kept}" + ("" if at is None else f", and time may change that after {time_text(at)} UTC")
    if store.record is None:
        refs = [f"ref {name!r}: {why}" for name, why in sorted(store.expiry.dropped_refs.items())]
        return "; ".join([f"{count_text(len(store.expiry.removed), 'snapshot')} would be removed, {kept}", *refs])
    if store.record.status is not UpkeepStatus.REMOVED:
        return store.record.summary
    grace = duration_text(timedelta(seconds=store.grace_seconds or 0))
    return (
        f"{store.record.summary}; run this again when 'compaction.expire.grace' is over ({grace} after the snapshots left), or let a "
        f"sensor or `serve` do it (record {store.record.record_id})"
    )


def kept_table(expired: Expired) -> Table:
    """One line for each snapshot that stays, with the reason."""
    table = titled_table("snapshots that stay", "store", "snapshot", "why", "at least until (UTC)")
    for store in expired.stores:
        for snapshot_id, stay in store.expiry.kept.items() if store.expiry is not None else ():
            table.add_row(escape(str(store.store)), str(snapshot_id), escape(stay.reason), time_text(stay.until) if stay.until else "")
    return table


def consumers_table(consumers: Iterable[Consumer]) -> Table:
    """One line for each registration, in the order given."""
    table = titled_table("consumers", "table", "consumer", "last snapshot read", "registered until (UTC)", "problem")
    for one in consumers:
        table.add_row(escape(str(one.store)), one.name, str(one.snapshot_id), time_text(one.until), escape(one.problem or ""))
    return table


def upkeep_table(records: Iterable[UpkeepRecord | UpkeepCommit | OrphanDeletion]) -> Table:
    """One line for each record, in the order given."""
    table = titled_table("upkeep", "record", "at (UTC)", "table", "work", "status", "what")
    for one in records:
        at, store, what = time_text(one.created_at), escape(str(one.store)), escape(one.summary)
        table.add_row(one.record_id, at, store, one.work.value, one.status.value, what)
    return table


def done_lines(done: Sequence[StoreDone], work: UpkeepWork) -> Iterator[str]:
    """What a work that commits did or would do in each store, or why it was refused."""
    for one in done:
        if one.refusal is not None:
            yield f"{one.store}: {WORK_IN_WORDS[work]}: {one.refusal}"
        elif one.plan is not None:
            yield f"{one.store}: {'would be done' if one.plan.is_due else 'nothing to do'}: {one.plan.reason}"
        elif one.outcome is not None:
            became = "nothing to do: " if one.outcome.is_nothing else "" if one.outcome.is_unknown else "done: "
            yield f"{one.store}: {became}{one.outcome.reason}"
            if one.outcome.unanswered:
                yield _UNANSWERED


def done_value(done: Sequence[StoreDone]) -> list[dict[str, object]]:
    """The same as JSON, with an item for each store. The figures of an unknown outcome are not known."""
    return [_value(one) for one in done]


def _value(one: StoreDone) -> dict[str, object]:
    outcome, plan = one.outcome, one.plan
    said = outcome or plan
    return {
        "store": str(one.store),
        "refusal": one.refusal,
        "state": outcome and outcome.state,
        "is_due": plan and plan.is_due,
        "reason": said and said.reason,
        "figures": said and dict(said.figures),
        "snapshot_before": outcome and outcome.snapshot_before,
        "snapshot_after": outcome and outcome.snapshot_after,
        "unanswered": outcome is not None and outcome.unanswered,
        "record": one.record and one.record.record_id,
    }


def standings_table(found: OrphanDecision) -> Table:
    """One line for each standing that a listed file may have, with the files and bytes that have it."""
    table = titled_table("files below the location", "standing", "files", "size", "what it means")
    for standing, total in found.totals.items():
        table.add_row(standing.value, f"{total.files:,}", bytes_text(total.size_bytes), _STANDINGS[standing])
    return table


def orphans_table(orphans: OrphanList) -> Table:
    """One line for each of the largest orphan files."""
    count = len(orphans.files)
    title = "orphan files" if count <= MOST_ORPHANS else f"the largest {MOST_ORPHANS} of {count:,} orphan files; --json lists all"
    table = titled_table(title, "path", "size", "written (UTC)")
    for file in sorted(orphans.files, key=lambda one: (-one.size_bytes, one.path))[:MOST_ORPHANS]:
        table.add_row(escape(file.path), bytes_text(file.size_bytes), time_text(file.modified_at))
    return table


def cleaned_lines(cleaned: Cleaned, delete: bool) -> Iterator[Table | str]:
    """What a look found, what was deleted, and why not more."""
    found = cleaned.found
    if found is not None:
        yield standings_table(found)
        if found.orphans.files and not cleaned.deletions:
            yield orphans_table(found.orphans)
    yield from (f"{cleaned.table}: {deletion.summary}" for deletion in cleaned.deletions)
    yield from (f"{cleaned.table}: nothing may be deleted: {refusal}" for refusal in cleaned.refusals)
    if found is not None and found.excess is not None and not cleaned.refusals:
        yield f"{cleaned.table}: these will not be deleted: {found.excess} (--accept-share)"
    if cleaned.problem is not None:
        yield f"{cleaned.table}: the deletion is not finished: {cleaned.problem}"
    elif delete and found is not None and found.excess is None and not found.orphans.files and not cleaned.refusals:
        yield f"{cleaned.table}: there are no orphan files"
    elif delete and not cleaned.deletions and not cleaned.refusals:
        yield (
            f"{cleaned.table}: nothing is deleted: no two looks at least 24 hours apart found the same orphan files; run this again a day "
            "after the first look, and within a week"
        )


def cleaned_value(cleaned: Cleaned) -> dict[str, object]:
    """The same as JSON. No orphan is listed when the look was refused, and none without a look."""
    found = cleaned.found
    files = found.orphans.files if found is not None else ()
    return {
        "listed_at": found and found.decided_at,
        "refusals": cleaned.refusals,
        "excess": found and found.excess,
        "standings": found.totals if found is not None else {},
        "orphans": [{"path": file.path, "size_bytes": file.size_bytes, "modified_at": file.modified_at} for file in files],
        "reasons": found.reasons if found is not None else {},
        "foreign_roots": found.foreign_roots if found is not None else (),
        "deletions": [plain(deletion) for deletion in cleaned.deletions],
        "problem": cleaned.problem,
    }
