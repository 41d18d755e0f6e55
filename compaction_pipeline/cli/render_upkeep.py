"""Texts and tables of what upkeep did, for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from compaction_pipeline.cli.render import titled_table
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.manifests import ManifestPlan
from compaction_pipeline.core.upkeep.manifests_outcome import ManifestFigures, ManifestsOutcome
from compaction_pipeline.core.upkeep.orphan_rules import Standing
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, OrphanList
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline.core.words import bytes_text, count_text, time_text

if TYPE_CHECKING:
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
    "An attempt got no answer. The next run finds the table as it is then. The manifests of an attempt that did not land stay until orphan "
    "files are removed."
)


def expired_lines(expired: Expired, dry_run: bool) -> Iterator[str]:
    """What a run did or would do: a line for each earlier record that it went on with, and one for each store."""
    for record in expired.earlier:
        yield f"{record.store}, record {record.record_id}: {record.summary}"
    for store in expired.stores:
        yield f"{store.store}: {_store_text(store, dry_run)}"


def _store_text(store: ExpiredStore, dry_run: bool) -> str:
    if store.expiry is None:
        return f"nothing expires: {store.refusal}"
    count = len(store.expiry.kept)
    kept = f"{count_text(count, 'snapshot')} {'stays' if count == 1 else 'stay'}"
    if not store.expiry.is_due:
        at = store.expiry.next_look
        return f"nothing is old enough; {kept}" + ("" if at is None else f", and time may change that after {time_text(at)}")
    if store.record is None:
        refs = [f"ref {name!r}: {why}" for name, why in sorted(store.expiry.dropped_refs.items())]
        return "; ".join([f"{count_text(len(store.expiry.removed), 'snapshot')} would be removed, {kept}", *refs])
    if store.record.status is not UpkeepStatus.REMOVED:
        return store.record.summary
    return (
        f"{store.record.summary}; run this again when 'compaction.expire.grace' is over, or let a sensor or `serve` do it "
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


def manifests_lines(table: TableIdentifier, done: ManifestPlan | ManifestsOutcome | str) -> Iterator[str]:
    """What a rewrite of manifests did or would do, or why it was refused."""
    if isinstance(done, str):
        yield done
        return
    figures = _figures(done)
    if isinstance(done, ManifestsOutcome) and done.is_unknown:
        yield f"{table}: {done.reason}"
    elif not figures.replaced:
        yield f"{table}: nothing is rewritten: {done.reason}"
    else:
        before = count_text(figures.kept + figures.replaced, "manifest")
        became = "would become about" if isinstance(done, ManifestPlan) else "became"
        yield f"{table}: {before} {became} {figures.kept + figures.created} ({done.reason})"
    if isinstance(done, ManifestsOutcome) and (done.is_unknown or done.unanswered):
        yield _UNANSWERED


def manifests_value(done: ManifestPlan | ManifestsOutcome | str) -> dict[str, object]:
    """The same as JSON. A figure is None when it is not known."""
    outcome = done if isinstance(done, ManifestsOutcome) else None
    figures = None if isinstance(done, str) or (outcome is not None and outcome.is_unknown) else _figures(done)
    return {
        "refusal": done if isinstance(done, str) else None,
        "state": outcome and outcome.state,
        "reason": None if isinstance(done, str) else done.reason,
        "manifests_before": figures and figures.kept + figures.replaced,
        "manifests_after": figures and figures.kept + figures.created,
        "opened_before": figures and figures.opened_before,
        "opened_after": figures and figures.opened_after,
        "snapshot_before": outcome and outcome.snapshot_before,
        "snapshot_after": outcome and outcome.snapshot_after,
        "unanswered": outcome is not None and outcome.unanswered,
    }


def _figures(done: ManifestPlan | ManifestsOutcome) -> ManifestFigures:
    if isinstance(done, ManifestsOutcome):
        return done.figures
    created = sum(group.parts for group in done.groups)
    return ManifestFigures(created, len(done.kept), len(done.rewritten), 0, done.opened_before, done.opened_after)


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
    table = titled_table(title, "path", "size", "written")
    for file in sorted(orphans.files, key=lambda one: (-one.size_bytes, one.path))[:MOST_ORPHANS]:
        table.add_row(escape(file.path), bytes_text(file.size_bytes), time_text(file.modified_at))
    return table


def orphans_value(found: OrphanDecision) -> dict[str, object]:
    """What was found, as JSON. No orphan is listed when the look was refused."""
    return {
        "listed_at": found.decided_at,
        "refusals": found.refusals,
        "standings": found.totals,
        "orphans": [{"path": file.path, "size_bytes": file.size_bytes, "modified_at": file.modified_at} for file in found.orphans.files],
        "reasons": found.reasons,
        "foreign_roots": found.foreign_roots,
    }
