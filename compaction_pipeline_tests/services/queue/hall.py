"""A hall has one group, containers whose optimizers are names in a set, and a maintainer whose clock only the test moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import count

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import BY_HAND, Container, ContainerKind
from compaction_pipeline.core.queue.container_answers import Room, Running, Unknown
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.queue.maintain_optimizers import SETTLES_WITHIN, MaintainOptimizers
from compaction_pipeline_tests.builders import NOW

RUNNING, DRAINING, LOST, STARTING = OptimizerState.RUNNING, OptimizerState.DRAINING, OptimizerState.LOST, OptimizerState.STARTING
HEAVY = ResourceGroup("heavy", "workers", {"instances": "2", "min-instances": "2", "parallelism": "3"})


@dataclass
class FakeContainers:
    """Containers whose optimizers are names in a set."""

    host: str = "here"
    has_file: bool = True
    known: dict[str, Container] = field(default_factory=lambda: {"workers": Container("workers", ContainerKind.LOCAL), "external": BY_HAND})
    kind: ContainerKind = ContainerKind.LOCAL
    """Where the optimizers run. A look for processes of another kind finds nothing."""
    alive: set[str] = field(default_factory=set)
    ended: set[str] = field(default_factory=set)
    silent: Unknown | None = None
    asked: int = 0
    outside: Room = Room()
    problem: Exception | None = None
    unread: ConfigError | None = None
    killed: bool = False
    before_start: Callable[[], object] = lambda: None

    def containers(self) -> Mapping[str, Container]:
        if self.unread is not None:
            raise self.unread
        return self.known

    def container(self, name: str) -> Container:
        if name not in self.containers():
            raise ConfigError(f"no container {name}")
        return self.known[name]

    def arguments(self, container: Container, group: ResourceGroup, resource_id: str = "") -> Sequence[str]:
        return ()

    def start(self, container: Container, group: ResourceGroup, resource_id: str) -> None:
        self.before_start()
        if self.killed:
            raise KeyboardInterrupt
        if self.problem is not None:
            raise self.problem
        self.alive.add(resource_id)

    def running(self, container: Container) -> Running | Unknown:
        self.asked += 1
        if container.kind is not self.kind:
            return Running()
        return self.silent or Running(frozenset(self.alive), frozenset(self.ended))

    def last_words(self, container: Container, resource_id: str) -> str:
        return "no such token"

    def stop(self, container: Container, resource_id: str) -> Unknown | None:
        if self.silent is None and container.kind is self.kind:
            self.alive.discard(resource_id)
        return self.silent

    def free(self, container: Container, group: ResourceGroup) -> Room | Unknown:
        return self.silent or self.outside


class Hall:
    """A group, its containers, and a maintainer whose clock only the test moves."""

    def __init__(self, stores: Stores, group: ResourceGroup = HEAVY) -> None:
        self.stores = stores
        self.stores.groups.add(group)
        self.containers = FakeContainers()
        self.now = NOW
        self._ids = (f"{number:04d}" for number in count())
        self.maintainer = self.another()

    def another(self, optimizers: OptimizerStore | None = None) -> MaintainOptimizers:
        """A maintainer of another server. It has run for a while."""
        made = self.fresh(optimizers or self.stores.optimizers)
        made.maintain()
        self.now += SETTLES_WITHIN
        return made

    def fresh(self, optimizers: OptimizerStore) -> MaintainOptimizers:
        """A maintainer that has just started."""
        stores, ids = self.stores, self._ids
        ports = (stores.groups, optimizers, stores.queues, stores.teams, stores.scaling, self.containers)
        return MaintainOptimizers(*ports, (lambda: self.now, lambda: next(ids)))

    def pass_time(self, time: timedelta = timedelta(minutes=1)) -> None:
        """One round after a while, in which all that run are heard of."""
        self.now += time
        for each in self.rows(RUNNING, DRAINING):
            self.stores.optimizers.touch(each.optimizer_id, self.now)
        self.maintainer.maintain()

    def rows(self, *states: OptimizerState) -> list[Optimizer]:
        return [each for each in self.stores.optimizers.optimizers() if each.state in states]

    def register_all(self) -> None:
        for each in self.rows(STARTING):
            self.register(each)

    def register(self, each: Optimizer) -> None:
        """The process of a STARTING optimizer comes up."""
        self.stores.optimizers.register(
            replace(each, optimizer_id=f"new-{each.resource_id}", state=RUNNING, process="7", version="1", why="", touched_at=self.now)
        )

    def poll_all(self) -> None:
        for each in self.rows(RUNNING):
            self.stores.optimizers.note_first_poll(each.optimizer_id, self.now)

    def end(self, optimizer: Optimizer) -> None:
        """It says goodbye, and its process ends."""
        self.stores.optimizers.move(optimizer.optimizer_id, (RUNNING, DRAINING), OptimizerState.ENDED, "bye")
        self.containers.alive.discard(optimizer.resource_id)
