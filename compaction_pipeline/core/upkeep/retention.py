"""Tells how long the snapshots of a table are kept, as the properties in force say it.

Iceberg's properties and Amoro's are obeyed. Where both speak of one thing, the longer time and the greater number win.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from compaction_pipeline.core.tables.expiry_properties import EXPIRY_PROPERTIES
from compaction_pipeline.core.tables.properties import in_force, values_of
from compaction_pipeline.core.tables.property_rules import NEVER
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.tables.watermark_keys import keys_that_may_count


@dataclass(frozen=True, slots=True)
class Retention:
    """What the properties of a table ask for. `writer_keys` are the snapshot properties that name writers, besides the known ones,
    and `watermark_keys` those that may hold a watermark."""

    max_snapshot_age: timedelta = timedelta(days=5)
    min_to_keep: int = 1
    max_ref_age: timedelta = NEVER
    amoro_age: timedelta = timedelta(0)
    amoro_count: int = 1
    writer_retention: timedelta = timedelta(days=7)
    grace: timedelta = timedelta(hours=1)
    change_ttl: timedelta = timedelta(days=7)
    enabled: bool = False
    rows_expire: bool = False
    gc_enabled: bool = True
    catalog_has_branches: bool = False
    writer_keys: tuple[str, ...] = ()
    watermark_keys: tuple[str, ...] = keys_that_may_count({})
    cleans_orphans: bool = False
    orphan_age: timedelta = timedelta(days=3)

    def age(self, of_branch: timedelta | None = None) -> timedelta:
        """Snapshots younger than this stay: what a branch says itself, or Iceberg's property; Amoro's where that is longer."""
        return max(self.max_snapshot_age if of_branch is None else of_branch, self.amoro_age)

    def count(self, of_branch: int | None = None) -> int:
        """At least this many snapshots of a branch stay, by the same rule."""
        return max(self.min_to_keep if of_branch is None else of_branch, self.amoro_count)


def resolve_retention(table: Mapping[str, str], catalog: Mapping[str, str], of: TableIdentifier | None = None) -> Retention:
    """Return the retention in force. `table` are the table's properties, `catalog` the catalog's, `of` the table for messages.

    Raises ConfigError for the first property that breaks its rule. It names table, key, value and rule, and says how to correct it.
    """
    values, _ = values_of(EXPIRY_PROPERTIES, table, catalog, of)
    return Retention(**values, watermark_keys=keys_that_may_count(in_force(table, catalog)))
