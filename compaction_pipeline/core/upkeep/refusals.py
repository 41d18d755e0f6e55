"""Says why nothing may expire in a table, whatever its snapshots are."""

from __future__ import annotations

from urllib.parse import urlsplit

from compaction_pipeline.core.upkeep.retention import Retention


def why_nothing_expires(retention: Retention, location: str) -> str | None:
    """Return the sentence that says why nothing expires; None when snapshots may."""
    if not retention.gc_enabled:
        return "'gc.enabled' is false: no file of the table may ever be deleted"
    if retention.catalog_has_branches:
        return (
            "'compaction.catalog-has-branches' is true: other branches of the catalog need snapshots that are not seen here; use the tool "
            "of the catalog, e.g. Nessie's garbage collector"
        )
    if is_root(location):
        return f"its location {location!r} is a root: everything of everybody lies below it"
    return None


def is_root(location: str) -> bool:
    """Whether a location is empty, the root of a file system, or a whole bucket."""
    parts = urlsplit(location)
    return not parts.path.strip("/")
