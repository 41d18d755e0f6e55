"""What a container answers decides whether an optimizer is given up, ended or started: an answer that did not come decides none of it.

Figures of memory are bytes. Cores are counted in thousandths, as Kubernetes gives them out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from compaction_pipeline.core.queue.container import Container, bounds_of, cores_of, cpu_of, memory_of
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.words import bytes_text, count_text, moment_text


@dataclass(frozen=True, slots=True)
class Unknown:
    """A container did not answer. `why` says in words what came instead."""

    why: str


@dataclass(frozen=True, slots=True)
class Running:
    """What runs in a container, as it answers itself.

    `alive` are resource ids of optimizers that run, or that wait in the container for their turn. `ended` are those of which the container
    knows that they have ended. A container that sees only one host knows none.
    """

    alive: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Size:
    """What an optimizer takes, or several together. `memory` is 0 where it is not known. A task that is merged at a time takes a core."""

    memory: int = 0
    millicores: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.memory + other.memory, self.millicores + other.millicores)


@dataclass(frozen=True, slots=True)
class Room:
    """How much more a container may hold. None stands for a part that has no bound. It is negative when too much is there already."""

    memory: int | None = None
    millicores: int | None = None

    def holds(self, size: Size, wanted: int) -> int:
        """Return how many of `wanted` optimizers of this size may be started."""
        bounded = [(free, each) for free, each in ((self.memory, size.memory), (self.millicores, size.millicores)) if free is not None]
        # What nobody knows the size of does not fit below a bound.
        parts = [max(0, free) // each if each else 0 for free, each in bounded]
        return min([wanted, *parts])

    def after(self, size: Size, count: int) -> Room:
        """Return what is left when so many optimizers of this size have been started."""
        memory = None if self.memory is None else self.memory - count * size.memory
        return Room(memory, None if self.millicores is None else self.millicores - count * size.millicores)

    @property
    def in_words(self) -> str:
        """For example: 1.5 GB of memory and 2 cores."""
        parts = [] if self.memory is None else [f"{bytes_text(max(0, self.memory))} of memory"]
        parts += [] if self.millicores is None else [_cores_text(max(0, self.millicores))]
        return " and ".join(parts)


def size_of(container: Container, group: ResourceGroup) -> Size:
    """Return what one optimizer of a group takes in a container."""
    # The second rounding takes off what 1.1 × 1000 is too much in binary numbers.
    return Size(memory_of(container, group), ceil(round(1000 * cores_of(cpu_of(container, group)), 6)))


def room_of(container: Container, outside: Room, optimizers: Iterable[Optimizer], alive: frozenset[str], host: str) -> Room:
    """Return how much room a container has on this host: what its own bounds and the world outside leave.

    `optimizers` are all that are known. Those of this container on this host take room while they live, and while their process is `alive`
    although they are lost.
    """
    memory, cores = bounds_of(container)
    # A process that was taken for lost and registers again has two rows. The newest one says what it is.
    held = {
        each.resource_id: Size(each.memory_bytes, 1000 * each.parallelism)
        for each in optimizers
        if each.container == container.name and each.host == host and (each.state.is_live or each.resource_id in alive)
    }
    taken = sum(held.values(), Size())
    bound = None if cores is None else 1000 * cores
    return Room(_least(memory, taken.memory, outside.memory), _least(bound, taken.millicores, outside.millicores))


def _cores_text(millicores: int) -> str:
    whole, rest = divmod(millicores, 1000)
    return f"{millicores / 1000:g} cores" if rest else count_text(whole, "core")


def _least(bound: int | None, taken: int, outside: int | None) -> int | None:
    left = [part for part in (None if bound is None else bound - taken, outside) if part is not None]
    return min(left, default=None)


def dead_of(optimizers: Iterable[Optimizer], running: Mapping[str, Running | Unknown], host: str) -> tuple[Optimizer, ...]:
    """Return the STARTING optimizers that will never register, because the container knows that they ended, or because they were started
    on this host and nothing of them is left.

    `running` has the answer of each container, by name.
    """
    found = []
    for each in optimizers:
        answer = running.get(each.container)
        if each.state is not OptimizerState.STARTING or not isinstance(answer, Running) or each.resource_id in answer.alive:
            continue
        if each.resource_id in answer.ended or each.host == host:
            found.append(each)
    return tuple(found)


def no_room_text(container: Container, group: ResourceGroup, room: Room, now: datetime) -> str:
    """Say why a container was not asked for another optimizer of a group."""
    size = size_of(container, group)
    if not size.memory and room.memory is not None:
        return (
            f"container {container.name} starts no optimizer of group {group.name}, because its memory is bounded and nobody knows how "
            f"much an optimizer needs: set it with `compaction-pipeline group change {group.name} -p memory=BYTES`"
        )
    needs = Room(size.memory if room.memory is not None else None, size.millicores if room.millicores is not None else None)
    return (
        f"container {container.name} has no room for another optimizer of group {group.name}: it needs {needs.in_words}, and at "
        f"{moment_text(now, now)} {room.in_words} were free; end other optimizers of the container, make these smaller, or raise its bounds"
    )


def no_room_to_replace_text(group: ResourceGroup, why: str) -> str:
    """Say why the only optimizer of a group keeps its old settings. `why` says what there is no room for."""
    return (
        f"NO_ROOM_TO_REPLACE: the only optimizer of group {group.name} keeps its old settings, because it may stop only when another one "
        f"takes tasks; drain it by hand to do without it for a while: {why}"
    )


def unknown_text(container: str, answer: Unknown, now: datetime) -> str:
    """Say that nothing is started in a container, because it does not answer."""
    return (
        f"container {container} did not answer at {moment_text(now, now)}, so none of its optimizers is started, ended or given up until "
        f"it does: {answer.why}"
    )
