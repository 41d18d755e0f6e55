"""What a person asks about containers: which there are on this host, and how an optimizer is started by hand."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.group import unknown_group
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.queue.ports.groups import GroupStore


class ReadContainers:
    """Two verbs: containers, command. It starts nothing."""

    def __init__(self, groups: GroupStore, containers: Containers) -> None:
        self._groups = groups
        self._containers = containers

    def containers(self) -> Sequence[Container]:
        """Return the containers that this host knows, by name. Raises ConfigError when their file cannot be read."""
        found = self._containers.containers()
        return tuple(found[name] for name in sorted(found))

    def command(self, group: str) -> Sequence[str]:
        """Return the command line that runs an optimizer of a group, as its container would, or by hand.

        Raises NotFoundError, and ConfigError when this host does not know the container of the group.
        """
        found = self._groups.group(group)
        if found is None:
            raise unknown_group(group)
        return ("compaction-pipeline", *self._containers.arguments(self._containers.container(found.container), found))
