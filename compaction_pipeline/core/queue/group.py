"""Resource groups: what starts the optimizers of a queue, when the queue is full, and who may still insert.

The tasks of a group's tables wait in one queue. The group says how many may wait, in which order they run, and what starts the optimizers
that run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError
from compaction_pipeline.core.tables.group_name import DEFAULT_GROUP, GROUP_NAME_RULE, is_group_name
from compaction_pipeline.core.tables.team_name import TEAM_NAME_RULE, is_team_name
from compaction_pipeline.core.words import count_text

DEFAULT_CAPACITY = 10_000
MOST_CAPACITY = 1_000_000
EXTERNAL = "external"
"""The container of groups whose optimizers are started by hand, or by a system that this program does not know."""
MOST_MEMORY_OF_ONE = 2**50
"""So many bytes of memory may an optimizer say that it has, and a group that its optimizers have: more than any machine."""
INSTANCES, MIN_INSTANCES, PARALLELISM, MEMORY = "instances", "min-instances", "parallelism", "memory"
_NUMBERS: Mapping[str, tuple[int, int]] = {
    INSTANCES: (0, 1_000),
    MIN_INSTANCES: (0, 1_000),
    PARALLELISM: (1, 1_024),
    MEMORY: (0, MOST_MEMORY_OF_ONE),
}
"""The properties of a group that this program knows, each with its least and its highest value."""
TEAM = "team"
"""The team that pays for the idle time of a group's optimizers, and whose limits bound how many of them are started."""
VERIFY_OUTPUTS = "verify-outputs"
FOOTER, ROWS = "footer", "rows"
"""What of a report's files is looked at before the report is believed: their footers, or their rows too (`docs/security.md`)."""
_SHOWN = 5


class QueueOrder(str, Enum):
    """Which waiting task of a queue is next. `core.queue.order` has the rule of PRIORITY, and `core.queue.quota` that of QUOTA.

    FIFO: the one that waited longest. PRIORITY: the one of the table with the highest priority; waiting counts as priority. QUOTA: one of
    the table that has used the smallest part of its quota in the last hour.
    """

    FIFO = "fifo"
    PRIORITY = "priority"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class CompactionQueue:
    """The queue of a group.

    `capacity` limits the tasks that are still to be merged: they are Pending, Executing, or FAILED and wait to be tried again. Tasks of
    paused tables that nobody has begun do not count, because nobody may begin them.
    """

    capacity: int = DEFAULT_CAPACITY
    order: QueueOrder = QueueOrder.PRIORITY


@dataclass(frozen=True, slots=True)
class QueueRoom:
    """How full a queue is for one plan.

    `limit` is how many places the plan may fill: the whole capacity for a person, nine tenths of it for a tick. `taken` are the places that
    tasks hold now. `first` is True when the plan may take more places than are free: for a person, and for the table that has waited
    longest for room in its group.
    """

    group: str
    capacity: int
    limit: int
    taken: int
    first: bool = False

    @property
    def free(self) -> int:
        """How many more tasks may be planned."""
        return max(0, self.limit - self.taken)

    @property
    def is_open(self) -> bool:
        """True when tables that wait for room are planned again: a tenth of the capacity is free below `limit`, and at least one place."""
        return self.free >= max(1, self.capacity // 10)

    def admits(self, tasks: int) -> bool:
        """Return whether this many tasks may be added. They are one unit: all of them are planned, or none.

        When `first`, a unit that is larger than the free room is admitted as soon as the queue is open. Otherwise smaller
        work of other tables would take each free place before there are enough of them.
        """
        return tasks <= self.free or (self.first and self.is_open)

    @property
    def in_words(self) -> str:
        """For example: the queue of group heavy holds 90 tasks, and ticks may fill it up to 90."""
        limit = f"its capacity is {self.limit}" if self.limit == self.capacity else f"ticks may fill it up to {self.limit}"
        return f"the queue of group {self.group} holds {count_text(self.taken, 'task')}, and {limit}"


class QueueFull(CompactionError):
    """A plan does not fit into the queue of its group. Nothing was inserted. `room` says how full the queue is."""

    def __init__(self, room: QueueRoom) -> None:
        super().__init__(room.in_words)
        self.room = room


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """A group of tables whose tasks wait in one queue.

    `container` names what starts the group's optimizers. `properties` tell it how: `instances` and `min-instances` are numbers of
    optimizers, `parallelism` is the number of tasks that each merges at a time, `memory` is in bytes. `verify-outputs` says what the server
    looks at before it believes a report. `team` is the team that pays for idle slots. All others are the container's own.

    `held` says why the container was not asked for optimizers that the group wants, at the last look; "" when nothing held them.
    """

    name: str
    container: str = EXTERNAL
    properties: Mapping[str, str] = field(default_factory=dict)
    queue: CompactionQueue = CompactionQueue()
    held: str = ""

    @property
    def verifies_rows(self) -> bool:
        """Whether the rows of each report are compared with those that its task must write."""
        return self.properties.get(VERIFY_OUTPUTS) == ROWS

    def changed_properties(self, changes: Mapping[str, str]) -> Mapping[str, str]:
        """Return the properties after these changes. The others stay, and a property that is changed to "" goes."""
        return {key: value for key, value in {**self.properties, **changes}.items() if value}

    @property
    def team(self) -> str | None:
        """The team whose limits bound the group's optimizers; None when it names none."""
        return self.properties.get(TEAM)

    def room(self, taken: int, *, by_person: bool, first: bool = False) -> QueueRoom:
        """Return how full the queue is for a plan. The last tenth of the capacity is kept for people."""
        capacity = self.queue.capacity
        return QueueRoom(self.name, capacity, capacity if by_person else max(1, capacity * 9 // 10), taken, first)

    def number(self, key: str) -> int | None:
        """Return the value of a property that is a number; None when it is not set."""
        text = self.properties.get(key)
        return None if text is None else int(text)


@dataclass(frozen=True, slots=True)
class GroupHolders:
    """What keeps a group from being deleted.

    `open_tasks` have not ended. `optimizers` are the ids of live ones. `tables` and `catalogs` name the group in their properties.
    """

    open_tasks: int = 0
    optimizers: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    catalogs: tuple[str, ...] = ()

    @property
    def are_any(self) -> bool:
        return bool(self.open_tasks or self.optimizers or self.tables or self.catalogs)

    @property
    def in_words(self) -> str:
        """For example: 3 open tasks; tables lake.shop.orders, lake.shop.items."""
        named = (("live optimizers", self.optimizers), ("tables", self.tables), ("catalogs", self.catalogs))
        parts = [count_text(self.open_tasks, "open task")] if self.open_tasks else []
        parts += [f"{kind} {', '.join(names[:_SHOWN])}{', …' * (len(names) > _SHOWN)}" for kind, names in named if names]
        return "; ".join(parts)


def group_name(text: str) -> str:
    """Return the name of a group. Raises ConfigError when it breaks the rule."""
    if not is_group_name(text):
        raise ConfigError(f"the group name {text[:100]!r} must have {GROUP_NAME_RULE}")
    return text


def checked(group: ResourceGroup) -> ResourceGroup:
    """Return the group. Raises ConfigError when a part of it breaks its rule."""
    group_name(group.name)
    if not 1 <= group.queue.capacity <= MOST_CAPACITY:
        raise ConfigError(f"the capacity of group {group.name} is {group.queue.capacity} but must be from 1 to {MOST_CAPACITY}")
    for key, (least, most) in _NUMBERS.items():
        text = group.properties.get(key, str(least))
        if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
            raise ConfigError(f"'{key}' of group {group.name} is {text!r} but must be a whole number from {least} to {most}")
    verified = group.properties.get(VERIFY_OUTPUTS, FOOTER)
    if verified not in (FOOTER, ROWS):
        raise ConfigError(f"'{VERIFY_OUTPUTS}' of group {group.name} is {verified!r} but must be {FOOTER!r} or {ROWS!r}")
    if group.team is not None and not is_team_name(group.team):
        raise ConfigError(f"'{TEAM}' of group {group.name} is {group.team[:100]!r} but must have {TEAM_NAME_RULE}")
    instances, least = group.number(INSTANCES) or 0, group.number(MIN_INSTANCES) or 0
    if least > instances:
        raise ConfigError(
            f"'{MIN_INSTANCES}' of group {group.name} is {least} but must not be more than '{INSTANCES}', which is {instances}"
        )
    return group


def unknown_group(name: str) -> NotFoundError:
    """The error for a group that does not exist."""
    return NotFoundError(f"group {name!r} does not exist; `compaction-pipeline group list` shows those that do, `group add` makes one")


def group_missing_text(name: str) -> str:
    """Say why a table whose group does not exist is not planned."""
    return (
        f"'self-optimizing.group' is {name!r}, and this group does not exist: make it with `compaction-pipeline group add {name}`, "
        f"or name another one; the group {DEFAULT_GROUP!r} always exists"
    )
