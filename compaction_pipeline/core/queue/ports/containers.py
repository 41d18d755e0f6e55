"""What starts and ends the processes of optimizers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.group import ResourceGroup


class Containers(Protocol):
    """Starts and ends optimizers, in the containers that a file on this host describes.

    `host` is the name of this host. The processes of optimizers outlive the process that started them. `has_file` says that this process
    knows a file. Without one it knows only the container of optimizers that people start.
    """

    host: str
    has_file: bool

    def containers(self) -> Mapping[str, Container]:
        """Return the containers as the file describes them now, by name. Raises ConfigError when the file cannot be read."""

    def container(self, name: str) -> Container:
        """Return one container. Raises ConfigError when there is none of this name, or when the file cannot be read."""

    def arguments(self, container: Container, group: ResourceGroup, resource_id: str = "") -> Sequence[str]:
        """Return the arguments of `compaction-pipeline` that run an optimizer of a group."""

    def start(self, container: Container, group: ResourceGroup, resource_id: str) -> None:
        """Start an optimizer of a group. It registers later, with this resource id.

        Raises ConfigError or StorageUnavailable when it cannot be started; nothing of it is left then.
        """

    def running(self) -> Collection[str]:
        """Return the resource ids of the optimizers that have a process on this host."""

    def last_words(self, resource_id: str) -> str:
        """Return the last line that an optimizer, which was started on this host, wrote into its log; "" when there is none."""

    def stop(self, resource_id: str) -> None:
        """End at once what an optimizer has on this host. Nothing happens when it has nothing there."""
