"""What each kind of container must do. A new kind is a new member of `ContainerKind`, and a class that does these five things."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup


@dataclass(frozen=True, slots=True)
class Start:
    """An optimizer that is to be started. `arguments` are those of `compaction-pipeline`."""

    container: Container
    group: ResourceGroup
    resource_id: str
    arguments: Sequence[str]


class Kind(Protocol):
    """`Containers` in `core/queue/ports/containers.py` says what each method does."""

    def start(self, start: Start) -> None: ...

    def running(self, container: Container) -> Running | Unknown: ...

    def last_words(self, container: Container, resource_id: str) -> str: ...

    def stop(self, container: Container, resource_id: str) -> Unknown | None: ...

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown: ...
