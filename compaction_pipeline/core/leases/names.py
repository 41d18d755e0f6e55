"""Gives the names of the leases that several columns take. `table` is the identifier of a table."""

from __future__ import annotations


def refresh_lease(table: object) -> str:
    """The lease under which the index of a table is changed."""
    return f"refresh:{table}"


def plan_lease(table: object) -> str:
    """The lease under which a table is planned."""
    return f"plan:{table}"


def commit_lease(table: object) -> str:
    """The lease under which the metadata of a table is changed."""
    return f"commit:{table}"


def upkeep_lease(table: object) -> str:
    """The lease under which files of a table are deleted."""
    return f"upkeep:{table}"
