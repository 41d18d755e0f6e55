"""Resource groups and containers as programs read them: in the answers of commands and of the HTTP service."""

from __future__ import annotations

from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.group import ResourceGroup


def group_value(group: ResourceGroup, problem: str | None = None, warning: str | None = None) -> dict[str, object]:
    """Return the JSON value of a group. Secrets of its properties are hidden.

    It has the keys `problem` and `warning` only when there is one.
    """
    value: dict[str, object] = {
        "group": group.name,
        "capacity": group.queue.capacity,
        "order": group.queue.order,
        "container": group.container,
        "properties": masked_properties(group.properties),
    }
    notes = {"problem": problem, "warning": warning}
    return {**value, **{key: text for key, text in notes.items() if text is not None}}


def container_value(container: Container) -> dict[str, object]:
    """Return the JSON value of a container. Secrets of its properties are hidden."""
    return {"container": container.name, "kind": container.kind, "properties": masked_properties(container.properties)}
