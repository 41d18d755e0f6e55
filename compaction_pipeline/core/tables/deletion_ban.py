"""Says whether a catalog or a table forbids this program to delete files: `s3.delete-enabled` is not true.

Iceberg's S3FileIO knows the key. Lakekeeper sends it as a default of `GET /v1/config` when a warehouse has soft deletion; who registers the
catalog may override it. Here it counts for every storage, every FileIO and every file, also for what a failed attempt has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compaction_pipeline.core.words import count_text

DELETE_ENABLED_KEY = "s3.delete-enabled"
_MOST_SHOWN = 3


def forbids_deletion(properties: Mapping[str, object]) -> bool:
    """Whether these properties forbid deletions. Java takes any text but "true" for false, and so does this."""
    return str(properties.get(DELETE_ENABLED_KEY, "true")).strip().lower() != "true"


def why_no_deletion(table: Mapping[str, object], catalog: Mapping[str, object], answered: Mapping[str, object]) -> str | None:
    """Return the sentence that says why no file of a table may be deleted, and who may change that; None when files may be deleted.

    `table` are the properties in the table's metadata, and `catalog` those with which the catalog is registered. `answered` are those with
    which the files are opened: they hold what the catalog itself answered, to the question for its configuration or for the table.
    """
    if forbids_deletion(table):
        return f"'{DELETE_ENABLED_KEY}' of the table is false: no file may be deleted; set it to true, or remove it, to let files go"
    inherited = {key.removeprefix("table."): value for key, value in catalog.items() if key.startswith("table.")}
    if forbids_deletion(catalog) or forbids_deletion(inherited):
        return (
            f"'{DELETE_ENABLED_KEY}' of the catalog is false: no file of its tables may be deleted; register the catalog with "
            f"{DELETE_ENABLED_KEY}=true, or change what it answers to GET /v1/config (Lakekeeper: 'push-s3-delete-disabled' of the storage)"
        )
    if forbids_deletion(answered):
        return (
            f"'{DELETE_ENABLED_KEY}' is false in what the catalog answers for the table: no file may be deleted; change it in the catalog"
        )
    return None


def would_go(why: str, paths: Iterable[str]) -> str:
    """Return the reason of a ban with the files that it keeps: how many, and the first of them."""
    kept = sorted(paths)
    more = f" and {len(kept) - _MOST_SHOWN:,} more" if len(kept) > _MOST_SHOWN else ""
    return f"{why}; without that, {count_text(len(kept), 'file')} would go: {', '.join(kept[:_MOST_SHOWN])}{more}"
