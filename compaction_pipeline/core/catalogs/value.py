"""A catalog as people and programs are shown it. Secrets are masked."""

from __future__ import annotations

from compaction_pipeline.core.catalogs.change import holder
from compaction_pipeline.core.catalogs.keys import OBSERVE
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.tables.table import CatalogEntry


def catalog_value(entry: CatalogEntry) -> dict[str, object]:
    """The name, whether it is only observed, the properties, and who holds each key, `observe` among them."""
    return {
        "catalog": entry.name,
        "observe": entry.observe,
        "properties": masked_properties(entry.properties),
        "sources": {key: holder(entry, key).value for key in (OBSERVE, *sorted(entry.properties))},
    }
