"""Fakes of the stores of groups, optimizers, watchers and tokens, for tests that need speed.

They pass the behaviour suites of the real stores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from compaction_pipeline.core.access.token import Token
from compaction_pipeline.core.queue.group import GroupHolders, ResourceGroup, unknown_group
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline.core.queue.watchers import FORGOTTEN_AFTER, Watcher, WatcherKind, renewed


class FakeOptimizerStore:
    def __init__(self, groups: Mapping[str, ResourceGroup]) -> None:
        self._groups = groups
        self._optimizers: dict[str, Optimizer] = {}
        self.tell_attempts: Callable[[str, str], None] = lambda optimizer_id, application: None

    def add(self, optimizer: Optimizer) -> None:
        if optimizer.group not in self._groups:
            raise unknown_group(optimizer.group)
        self._optimizers[optimizer.optimizer_id] = optimizer

    def begin(self, optimizer: Optimizer, most: int) -> bool:
        live = sum(each.is_managed and each.group == optimizer.group for each in self.optimizers(live=True))
        if optimizer.group in self._groups and live >= most:
            return False
        self.add(optimizer)
        return True

    def register(self, optimizer: Optimizer) -> Optimizer:
        same = [
            each
            for each in reversed(self.optimizers())
            if optimizer.resource_id and (each.group, each.resource_id) == (optimizer.group, optimizer.resource_id)
        ]
        before = next((each for each in same if each.state is OptimizerState.STARTING), same[0] if same else None)
        if before is not None:
            optimizer = replace(optimizer, container=before.container, settings=before.settings)
        if before is not None and before.state is OptimizerState.STARTING:
            optimizer = replace(optimizer, optimizer_id=before.optimizer_id, started_at=before.started_at)
        self.add(optimizer)
        return optimizer

    def optimizer(self, optimizer_id: str) -> Optimizer | None:
        return self._optimizers.get(optimizer_id)

    def optimizers(self, *, live: bool = False) -> Sequence[Optimizer]:
        chosen = (each for each in self._optimizers.values() if each.state.is_live or not live)
        return tuple(sorted(chosen, key=lambda each: (each.started_at, each.optimizer_id)))

    def touch(self, optimizer_id: str, now: datetime) -> Optimizer | None:
        found = self._optimizers.get(optimizer_id)
        if found is None or not found.state.is_heard:
            return None
        self._optimizers[optimizer_id] = replace(found, touched_at=now)
        return self._optimizers[optimizer_id]

    def note_application(self, optimizer_id: str, application: str) -> None:
        if optimizer_id in self._optimizers:
            self._optimizers[optimizer_id] = replace(self._optimizers[optimizer_id], application=application)
        self.tell_attempts(optimizer_id, application)

    def note_poll(self, optimizer_id: str, poll_id: str, attempts: Sequence[str]) -> None:
        if optimizer_id in self._optimizers:
            self._optimizers[optimizer_id] = replace(self._optimizers[optimizer_id], poll_id=poll_id, polled=tuple(attempts))

    def move(self, optimizer_id: str, states: Sequence[OptimizerState], to: OptimizerState, why: str, *, failed: bool = False) -> bool:
        found = self._optimizers.get(optimizer_id)
        if found is None or found.state not in states:
            return False
        self._optimizers[optimizer_id] = replace(found, state=to, why=why, failed=failed)
        return True

    def ask(self, optimizer_id: str, *, log_level: str | None = None, stack_request: str | None = None) -> bool:
        found = self._optimizers.get(optimizer_id)
        if found is None or not found.state.is_heard:
            return False
        level = found.log_level if log_level is None else log_level
        request = found.stack_request if stack_request is None else stack_request
        self._optimizers[optimizer_id] = replace(found, log_level=level, stack_request=request)
        return True

    def lose_silent(self, touched_before: datetime, why: str) -> Sequence[str]:
        silent = [each for each in self.optimizers(live=True) if each.state.is_heard and each.touched_at <= touched_before]
        lost = [each.optimizer_id for each in silent]
        for optimizer_id in lost:
            self._optimizers[optimizer_id] = replace(self._optimizers[optimizer_id], state=OptimizerState.LOST, why=why)
        return tuple(lost)

    def expire(self, before: datetime) -> int:
        gone = [each.optimizer_id for each in self.optimizers() if not each.state.is_live and each.touched_at < before]
        for optimizer_id in gone:
            del self._optimizers[optimizer_id]
        return len(gone)


class FakeWatcherStore:
    def __init__(self) -> None:
        self._watchers: dict[str, Watcher] = {}

    def renew(self, name: str, kind: WatcherKind, now: datetime, gap: timedelta) -> None:
        if name not in self._watchers:
            forgotten = [each.name for each in self._watchers.values() if each.renewed_at < now - FORGOTTEN_AFTER]
            for each in forgotten:
                del self._watchers[each]
        self._watchers[name] = renewed(self._watchers.get(name), name, kind, now, gap)

    def watchers(self) -> Sequence[Watcher]:
        return tuple(self._watchers[name] for name in sorted(self._watchers))


class FakeGroupStore:
    def __init__(self, groups: dict[str, ResourceGroup], optimizers: FakeOptimizerStore, open_tasks: Callable[[str], int]) -> None:
        self._groups, self._optimizers, self._open_tasks = groups, optimizers, open_tasks

    def groups(self) -> Sequence[ResourceGroup]:
        return tuple(self._groups[name] for name in sorted(self._groups))

    def group(self, name: str) -> ResourceGroup | None:
        return self._groups.get(name)

    def add(self, group: ResourceGroup) -> bool:
        return self._groups.setdefault(group.name, group) is group

    def change(self, group: ResourceGroup) -> bool:
        if group.name not in self._groups:
            return False
        self._groups[group.name] = group
        return True

    def remove(self, name: str) -> GroupHolders:
        live = sorted(each.optimizer_id for each in self._optimizers.optimizers(live=True) if each.group == name)
        holders = GroupHolders(self._open_tasks(name), tuple(live))
        if not holders.are_any:
            self._groups.pop(name, None)
        return holders


class FakeTokenStore:
    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}

    def add(self, token: Token) -> None:
        self._tokens[token.token_id] = token

    def token(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)

    def tokens(self) -> Sequence[Token]:
        return tuple(sorted(self._tokens.values(), key=lambda each: (each.created_at, each.token_id)))

    def revoke(self, token_id: str, now: datetime) -> bool:
        for each in self.tokens():
            if token_id in (each.token_id, each.parent_id) and not each.is_revoked:
                self._tokens[each.token_id] = replace(each, revoked_at=now)
        return token_id in self._tokens

    def block(self, token_id: str, now: datetime) -> bool:
        token = self._tokens.get(token_id)
        if token is not None:
            self._tokens[token_id] = replace(token, blocked_at=token.blocked_at or now)
        return token is not None

    def allow(self, token_id: str, now: datetime) -> bool:
        token = self._tokens.get(token_id)
        if token is not None:
            self._tokens[token_id] = replace(token, blocked_at=None, allowed_at=now)
        return token is not None

    def optimizers_of(self, token_id: str) -> Sequence[str]:
        return tuple(sorted(each.optimizer_id for each in self.tokens() if each.parent_id == token_id and each.optimizer_id))

    def issuer_of(self, optimizer_id: str) -> str | None:
        return next((each.parent_id for each in self.tokens() if each.optimizer_id == optimizer_id), None)

    def expire(self, before: datetime, optimizers: Collection[str]) -> int:
        gone = [
            each.token_id
            for each in self.tokens()
            if each.created_at < before
            and (
                (each.revoked_at is not None and each.revoked_at < before)
                or (each.optimizer_id is not None and each.optimizer_id not in optimizers)
            )
        ]
        for token_id in gone:
            del self._tokens[token_id]
        return len(gone)
