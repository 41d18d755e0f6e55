"""Keeps as many optimizers as each group wants, in the containers that start them.

The row of an optimizer is written before its process is started. So a crash between the two, or a process that never registers, leaves a
row that a later round finds. Several servers may do this at once by mistake: no group ever gets more rows than it wants, and one more
while it replaces optimizers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from threading import Lock

from compaction_pipeline.core.capacity.limits import Reserve
from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.capacity.scaling.policy import is_enabled
from compaction_pipeline.core.capacity.scaling.ports import ScalingStore
from compaction_pipeline.core.capacity.scaling.record import Scale
from compaction_pipeline.core.capacity.team_starts import starts_for_team
from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.container import Container, ContainerKind, memory_of, settings_digest
from compaction_pipeline.core.queue.container_answers import (
    Room,
    Running,
    Unknown,
    dead_of,
    no_room_text,
    no_room_to_replace_text,
    room_of,
    size_of,
    unknown_text,
)
from compaction_pipeline.core.queue.group import EXTERNAL, PARALLELISM, ResourceGroup
from compaction_pipeline.core.queue.instances import RESTS_AFTER, Round, Wants, changed_text, orphans, round_of, wanted_instances
from compaction_pipeline.core.queue.optimizer import HEARTBEAT, Optimizer, OptimizerState
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore
from compaction_pipeline.core.queue.ports.tasks import QueueReader
from compaction_pipeline.core.queue.queue_work import QueueWork
from compaction_pipeline.core.queue.scaling.sizes import count_there, group_policy, sized, wanted_now
from compaction_pipeline.core.tables.team_name import UNASSIGNED

log = logging.getLogger(__name__)

SETTLES_WITHIN = HEARTBEAT + timedelta(seconds=5)
"""A server that comes back starts nothing before this time has passed. The optimizers that outlived it are heard of again meanwhile."""

Answers = Mapping[str, Running | Unknown]
"""What each container answered, by its name."""
_SAYS = "; its container says: "


@dataclass(frozen=True, slots=True)
class _Target:
    """What a group wants now. `container` is None when it is not known on this host. `group` has the size that its scaling asks for.
    `waits` says that a worker could take a task of it."""

    group: ResourceGroup
    container: Container | None
    wants: Wants
    problem: str = ""
    waits: bool = False

    @property
    def wanted(self) -> int:
        """How many optimizers it wants."""
        return self.wants.instances


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the containers of a round answered, and what the file said of them then, both by name.

    `gone` are those that a file that could be read does not describe any more. They may have left processes on this host, so they are
    looked for as processes of a local container. That tells nothing of what they have on a cluster.
    """

    answers: Answers
    known: Mapping[str, Container]
    gone: frozenset[str]

    @property
    def telling(self) -> Answers:
        """The answers that tell whether an optimizer that has not registered is dead."""
        return {name: answer for name, answer in self.answers.items() if name not in self.gone}


class MaintainOptimizers:
    """Two verbs: maintain, watch. One process does both, in threads of their own, while it holds the lease of the keeper."""

    def __init__(
        self,
        groups: GroupStore,
        optimizers: OptimizerStore,
        queues: QueueReader,
        teams: TeamStore,
        scaling: ScalingStore,
        containers: Containers,
        own: tuple[Clock, Callable[[], str]],
    ) -> None:
        """`own` has the clock, and what makes new ids."""
        self._groups = groups
        self._optimizers = optimizers
        self._queues = queues
        self._teams = teams
        self._scaling = scaling
        self._containers = containers
        self._clock, self._new_id = own
        self._in_round = Lock()
        self._since: datetime | None = None
        self._seen: Mapping[str, tuple[ResourceGroup, str, int]] | None = None

    def maintain(self) -> None:
        """Do one round: start, drain and give up optimizers, and end processes that nobody needs. Raises StorageUnavailable.

        While another thread does a round, this one does nothing: it would see rows whose processes are about to start, and give them up.
        """
        if not self._in_round.acquire(blocking=False):
            return
        try:
            self._maintain()
        finally:
            self._in_round.release()

    def _maintain(self) -> None:
        now = self._clock()
        self._since = self._since or now
        if now - self._since < SETTLES_WITHIN:
            return
        try:
            self._rounds(now)
        except StorageUnavailable:
            # While the state database was away, no heartbeat was noted.
            self._since = None
            raise

    def _rounds(self, now: datetime) -> None:
        optimizers = self._optimizers.optimizers()
        targets = self._targets(now, optimizers)
        asked = self._ask(targets, optimizers)
        asked = replace(asked, answers={**asked.answers, **self._end_orphans(optimizers, asked, now)})
        self._note_last_words(optimizers, asked)
        for target in targets:
            try:
                self._round(target, optimizers, asked, now)
            except NotFoundError as error:
                # The group was deleted just now.
                log.info("group=%s its optimizers are not maintained: %s", target.group.name, error)
        self._seen = _seen(targets)

    def _ask(self, targets: Sequence[_Target], optimizers: Sequence[Optimizer]) -> _Asked:
        """Ask each container that has optimizers, or is to get some, what runs in it.

        While the file cannot be read, none is asked: nobody knows where to ask, and "nothing runs on this host" would be no answer.
        """
        names = {each.container for each in optimizers if each.is_managed} | {
            each.group.container for each in targets if each.wants.instances
        }
        gone: frozenset[str] = frozenset()
        known: dict[str, Container] = {}
        answers: dict[str, Running | Unknown] = {}
        try:
            found = self._containers.containers()
        except ConfigError as error:
            answers = dict.fromkeys(sorted(names), Unknown(str(error)))
        else:
            gone = frozenset(names - set(found))
            known = {name: found.get(name, Container(name, ContainerKind.LOCAL)) for name in sorted(names)}
            answers = {name: self._containers.running(container) for name, container in known.items()}
        for name, answer in answers.items():
            if isinstance(answer, Unknown):
                log.warning("container=%s did not answer: %s", name, answer.why)
        return _Asked(answers, known, gone)

    def _end_orphans(self, optimizers: Sequence[Optimizer], asked: _Asked, now: datetime) -> Answers:
        """End what nobody needs. Return the containers that no longer answer."""
        container_of = {each.resource_id: each.container for each in optimizers if each.is_managed}
        silent: dict[str, Running | Unknown] = {}
        for resource_id in sorted(orphans(optimizers, now)):
            name = container_of[resource_id]
            answer = asked.answers[name]
            if isinstance(answer, Running) and resource_id in answer.alive:
                log.warning("resource=%s is ended: its optimizer is gone, or drains and never asked for a task", resource_id)
                stopped = self._containers.stop(asked.known[name], resource_id)
                silent |= {} if stopped is None else {name: stopped}
        return silent

    def _note_last_words(self, optimizers: Sequence[Optimizer], asked: _Asked) -> None:
        """Add the word of its container to the reason of an optimizer that had registered, and was lost because it was silent."""
        for each in optimizers:
            answer = asked.answers.get(each.container) if each.is_managed else None
            is_silent = each.state is OptimizerState.LOST and bool(each.process) and _SAYS not in each.why
            if is_silent and isinstance(answer, Running) and each.resource_id in answer.ended:
                words = self._containers.last_words(asked.known[each.container], each.resource_id)
                self._optimizers.move(
                    each.optimizer_id, (OptimizerState.LOST,), OptimizerState.LOST, f"{each.why}{_SAYS}{words or 'nothing'}"
                )

    def watch(self) -> frozenset[str]:
        """Do a round at once when a group or a container has changed since the last one, or when a group has work again.

        Return the groups in which tasks wait. Raises StorageUnavailable. When a change is missed, the next round sees it.
        """
        targets = self._targets(self._clock())
        if _seen(targets) != self._seen:
            self.maintain()
        return frozenset(each.group.name for each in targets if each.waits)

    def _targets(self, now: datetime, optimizers: Sequence[Optimizer] = ()) -> Sequence[_Target]:
        works, scales = self._queues.works(now - RESTS_AFTER), self._scaling.scales()
        found = []
        for group in self._groups.groups():
            work = works.get(group.name, QueueWork(group.name))
            target = self._target(group, work, scales.get(group.name), count_there(group.name, optimizers))
            found.append(replace(target, waits=work.pending > 0))
        return found

    def _target(self, group: ResourceGroup, work: QueueWork, scale: Scale | None, there: int) -> _Target:
        wanted = wanted_instances(group, work)
        try:
            container = self._containers.container(group.container)
            policy = group_policy(group, container)
        except ConfigError as error:
            # A file that cannot be read for a while ends none of those that a policy asked for.
            if scale is not None and scale.is_on:
                wanted = scale.target.instances
            elif is_enabled(group.properties):
                wanted = max(wanted, there)
            return _Target(group, None, Wants(0 if group.container == EXTERNAL else wanted, None), str(error))
        if container.kind is ContainerKind.EXTERNAL:
            return _Target(group, container, Wants(0, settings_digest(container, group)))
        if policy is None:
            return _Target(group, container, Wants(wanted, settings_digest(container, group)))
        # What a person has just changed counts before the next decision.
        scale = wanted_now(group, container, policy, scale, there)
        group = sized(group, container, scale.target)
        return _Target(group, container, Wants(scale.target.instances, settings_digest(container, group), scale.replaces))

    def _round(self, target: _Target, optimizers: Sequence[Optimizer], asked: _Asked, now: datetime) -> None:
        group = target.group
        mine = {each.optimizer_id: each for each in optimizers if each.group == group.name}
        unseen = {name: answer for name, answer in asked.answers.items() if isinstance(answer, Unknown)}
        ended = dead_of(mine.values(), asked.telling, self._containers.host)
        dead = {each.optimizer_id: self._why_dead(asked.known[each.container], each) for each in ended}
        running = sum(each.is_managed and each.state is OptimizerState.RUNNING for each in mine.values())
        # Only one that drains is chosen by what it runs.
        attempts = self._queues.running_by() if running > target.wanted else {}
        decided = round_of(group, mine.values(), target.wants, dead, now, unseen, attempts)
        for optimizer_id, why in decided.lost.items():
            lost = mine[optimizer_id]
            if optimizer_id not in dead:
                # What it waits for, for example a pod whose image nobody finds.
                words = self._containers.last_words(asked.known[lost.container], lost.resource_id)
                why += f": {words}" if words else ""
            # One that has registered meanwhile stays. After a crash between the two steps the next round finds an orphan.
            if self._give_up(lost, why):
                answer = self._containers.stop(asked.known[lost.container], lost.resource_id)
                unseen |= {} if answer is None else {lost.container: answer}
        self._drain(group, decided.drain)
        silent = unseen.get(group.container) if target.wanted else None
        start, held = self._held(target, decided, silent, asked.answers, now)
        self._drain(group, self._gives_way(target, decided, held, silent))
        if held != group.held:
            self._groups.hold(group.name, held)
        for _ in range(start):
            if not self._start(target, decided.most, now):
                break

    def _drain(self, group: ResourceGroup, drain: Mapping[str, str]) -> None:
        for optimizer_id, why in drain.items():
            if self._optimizers.move(optimizer_id, (OptimizerState.RUNNING,), OptimizerState.DRAINING, why):
                log.info("optimizer=%s group=%s drains: %s", optimizer_id, group.name, why)

    def _gives_way(self, target: _Target, decided: Round, held: str, silent: Unknown | None) -> Mapping[str, str]:
        """The optimizer that drains first so that the next one may be started, with the reason. None when that would not help."""
        if not (held and decided.replaces and decided.gives_way) or silent is not None:
            return {}
        helps = target.container is None or self._held_by_team(target.container, target.group, 1, decided.gives_way)[0]
        return {decided.gives_way: changed_text(target.group)} if helps else {}

    def _held_by_team(self, container: Container, group: ResourceGroup, wanted: int, without: str = "") -> tuple[int, str]:
        """Return how many of `wanted` more optimizers may be started for the team of a group, and why not all; "" when all may be.

        `without` is the id of one that does not count.
        """
        if group.team is None:
            return wanted, ""
        standings = self._teams.standings()
        # A team that is gone pays no more: its tables are charged to this one too.
        standing = standings.get(group.team) or standings[UNASSIGNED]
        groups = {each.name for each in self._groups.groups() if each.team == group.team}
        own = {
            each.optimizer_id: Reserve(each.parallelism, each.memory_bytes)
            for each in self._optimizers.optimizers(live=True)
            if each.group in groups and each.optimizer_id != without
        }
        return starts_for_team(standing, own, Reserve(group.number(PARALLELISM) or 1, memory_of(container, group)), wanted)

    def _held(self, target: _Target, decided: Round, silent: Unknown | None, answers: Answers, now: datetime) -> tuple[int, str]:
        """Return how many more optimizers may be started, and why not all that are to be; "" when all may be."""
        group, container, wanted = target.group, target.container, decided.start
        if silent is not None:
            return 0, unknown_text(group.container, silent, now)
        if not wanted or container is None:
            return wanted, ""
        may, why = self._held_by_team(container, group, wanted)
        answer = self._containers.free(container, group) if may else Room()
        if isinstance(answer, Unknown):
            return 0, unknown_text(group.container, answer, now)
        running = answers.get(group.container)
        alive = running.alive if isinstance(running, Running) else frozenset()
        # The groups before this one may have started optimizers in this round.
        room = room_of(container, answer, self._optimizers.optimizers(), alive, self._containers.host)
        size = size_of(container, group)
        start = room.holds(size, may)
        if start == wanted:
            return start, ""
        why = why if start == may else no_room_text(container, group, room.after(size, start), now)
        return start, no_room_to_replace_text(group, why) if decided.replaces and not decided.gives_way else why

    def _why_dead(self, container: Container, optimizer: Optimizer) -> str:
        words = self._containers.last_words(container, optimizer.resource_id)
        return f"its process ended before it registered{': ' * bool(words)}{words}"

    def _start(self, target: _Target, most: int, now: datetime) -> bool:
        """Write the row of an optimizer, and start it. Return whether the next one may be started too."""
        group, container = target.group, target.container
        optimizer = Optimizer(
            f"optimizer-{self._new_id()}",
            group.name,
            self._containers.host,
            process="",
            version="",
            parallelism=group.number(PARALLELISM) or 1,
            started_at=now,
            touched_at=now,
            state=OptimizerState.STARTING,
            memory_bytes=0 if container is None else memory_of(container, group),
            # YARN writes its tags in small letters.
            resource_id=f"{group.name.lower()}-{self._new_id()}",
            container=group.container,
            settings=target.wants.settings or "",
            why=f"container {group.container} has been asked for it, and it has not registered yet",
        )
        if not self._optimizers.begin(optimizer, most):
            return False
        log.info("optimizer=%s group=%s resource=%s is started", optimizer.optimizer_id, group.name, optimizer.resource_id)
        try:
            if container is None:
                raise ConfigError(target.problem)
            self._containers.start(container, group, optimizer.resource_id)
        except CompactionError as error:
            self._give_up(optimizer, str(error))
            return False
        return True

    def _give_up(self, optimizer: Optimizer, why: str) -> bool:
        """Mark an optimizer as LOST, unless it has registered. Return whether it was marked."""
        given_up = self._optimizers.move(optimizer.optimizer_id, (OptimizerState.STARTING,), OptimizerState.LOST, why)
        if given_up:
            log.warning("optimizer=%s group=%s was not started: %s", optimizer.optimizer_id, optimizer.group, why)
        return given_up


def _seen(targets: Sequence[_Target]) -> Mapping[str, tuple[ResourceGroup, str, int]]:
    return {
        target.group.name: (replace(target.group, held=""), target.wants.settings or target.problem, target.wanted) for target in targets
    }
