"""A resource group as programs read it: in the answers of commands and of the HTTP service."""

from __future__ import annotations

from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.queue.group import ResourceGroup


def group_value(group: ResourceGroup) -> dict[str, object]:
    """Return the JSON value of a group. Secrets of its properties are hidden."""
    return {
        "group": group.name,
        "capacity": group.queue.capacity,
        "order": group.queue.order,
        "container": group.container,
        "properties": masked_properties(group.properties),
    }
