"""What starts and ends the processes of optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup


class Containers(Protocol):
    """Starts and ends optimizers, in the containers that a file on this host describes.

    `host` is the name of this host. The processes of optimizers outlive the process that started them. `has_file` says that this process
    knows a file. Without one it knows only the container of optimizers that people start.

    A container that does not answer is `Unknown`: nobody may conclude from that that an optimizer has ended, or start or end one.
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

    def running(self, container: Container) -> Running | Unknown:
        """Return which optimizers run in a container. A container that sees only one host answers for this one."""

    def last_words(self, container: Container, resource_id: str) -> str:
        """Return what the container says about the end of an optimizer, or the last line of its log on this host; "" when there is none."""

    def stop(self, container: Container, resource_id: str) -> Unknown | None:
        """End at once what an optimizer has in a container, as far as this host reaches it. Nothing happens when it has nothing there.

        Return Unknown when the container did not answer: then nothing was ended.
        """

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown:
        """Return how much room the world outside leaves a container for a group. The container's own bounds do not count."""
