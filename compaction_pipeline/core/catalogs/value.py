"""A catalog as people and programs are shown it. Secrets are masked."""

from __future__ import annotations

from compaction_pipeline.core.catalogs.change import holder
from compaction_pipeline.core.catalogs.keys import OBSERVE
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.tables.table import CatalogEntry


def catalog_value(entry: CatalogEntry) -> dict[str, object]:
    """The name, whether it is only observed, the properties, and who holds each key, `observe` among them.

    `unreadable` says why the secrets are not among the properties.
    """
    return {
        "catalog": entry.name,
        "observe": entry.observe,
        "properties": masked_properties(entry.properties),
        "sources": {key: _DEFAULT if is_default(entry, key) else holder(entry, key).value for key in (OBSERVE, *sorted(entry.properties))},
        "unreadable": entry.unreadable,
    }


def is_default(entry: CatalogEntry, key: str) -> bool:
    """Whether a key has the value that it has when nobody sets it."""
    return key == OBSERVE and not entry.observe and OBSERVE not in entry.held


_DEFAULT = "default"
