"""The names of leases that several columns take."""

from __future__ import annotations

from compaction_pipeline.core.tables.table import TableIdentifier


def commit_lease(table: TableIdentifier) -> str:
    """The lease under which the metadata of a table is changed."""
    return f"commit:{table}"


def upkeep_lease(table: TableIdentifier) -> str:
    """The lease under which files of a table are deleted."""
    return f"upkeep:{table}"
