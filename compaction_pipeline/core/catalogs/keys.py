"""The keys of a catalog's definition: the fields that doors show, and the properties that this program itself reads."""

from __future__ import annotations

from collections.abc import Mapping

from compaction_pipeline.core.tables.properties import CATALOG_PREFIX
from compaction_pipeline.core.tables.property_rules import GROUP_KEY

DATABASE_FILTER = "database-filter"
"""A regular expression. Only tables of namespaces that match as a whole are looked after. The key is Amoro's."""
TABLE_FILTER = "table-filter"
"""A regular expression. Only tables whose `namespace.table` matches as a whole are looked after. The key is Amoro's."""
TABLE_FORMATS = "table-formats"
"""Which of our formats are compacted, separated by commas. Without it both are. The key is Amoro's."""
AUTHENTICATION = "authentication"
"""How requests to the catalog prove who asks."""
OBSERVE = "observe"
"""Whether the tables are only measured. It is no property: it has a place of its own, but a source holds it like one."""
GROUP = CATALOG_PREFIX + GROUP_KEY
"""The resource group of tables that name none."""

OWN_KEYS = frozenset({DATABASE_FILTER, TABLE_FILTER, TABLE_FORMATS, AUTHENTICATION})
"""Properties that PyIceberg never gets."""

FIELDS: Mapping[str, str] = {
    "type": "type",
    "group": GROUP,
    "database_filter": DATABASE_FILTER,
    "table_filter": TABLE_FILTER,
    "formats": TABLE_FORMATS,
    "authentication": AUTHENTICATION,
}
"""The fields of a definition that stand for a property each, with its key."""
