"""A catalog whose answers to commits get lost or are wrong, and what commits left on storage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline_tests.iceberg.lake import Lake


class Faulty:
    """Replaces a catalog's `commit_table`, and causes faults in its first calls."""

    def __init__(self, catalog: Catalog, *plans: Callable[[Callable[[], Any]], Any]) -> None:
        self.calls = 0
        real = catalog.commit_table

        def commit_table(table: Any, requirements: Any, updates: Any) -> Any:
            def swap() -> Any:
                return real(table, requirements, updates)

            plan = plans[self.calls] if self.calls < len(plans) else None
            self.calls += 1
            return swap() if plan is None else plan(swap)

        # The catalog is this test's own.
        catalog.commit_table = commit_table


def silence_before(swap: Callable[[], Any]) -> Any:
    raise CommitStateUnknownException("gateway timeout")


def silence_after(swap: Callable[[], Any]) -> Any:
    swap()
    raise ConnectionResetError("peer went away")


def refused_after_success(swap: Callable[[], Any]) -> Any:
    swap()
    raise CommitFailedException("a retry of the transport met its own success")


def metadata_files(lake: Lake) -> set[str]:
    return {path.name for path in (lake.folder / "wh").rglob("metadata/*.avro")}
