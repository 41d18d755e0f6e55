"""The OptimizerStore: the registered optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from compaction_pipeline.core.capacity.driver_gc import DriverGc, observed
from compaction_pipeline.core.capacity.slot_time import SlotTotals
from compaction_pipeline.core.queue.group import EXTERNAL, MEMORY, ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState, reserved_memory
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import writing
from compaction_pipeline.storage.groups import lock_group
from compaction_pipeline.storage.ledger import note_slots, note_start
from compaction_pipeline.storage.sql_store import SqlStore

_LIVE = tuple(state for state in OptimizerState if state.is_live)
_HEARD = tuple(state for state in OptimizerState if state.is_heard)
_COUNTED = (OptimizerState.STARTING, OptimizerState.RUNNING)
"""Those that count for what a group may have. One that drains counts no more."""
_UNWANTED = "it was given up before it registered, so it takes no tasks"
_optimizer = schema.optimizer.c


class SqlOptimizerStore(SqlStore):
    """Optimizers in the state database."""

    def add(self, optimizer: Optimizer) -> None:
        with writing(self._engine) as connection:
            lock_group(connection, optimizer.group)
            connection.execute(insert(schema.optimizer).values(_values(optimizer)))

    def begin(self, optimizer: Optimizer, most: int) -> bool:
        managed = (_optimizer.group == optimizer.group, _optimizer.container != EXTERNAL, _optimizer.state.in_(_COUNTED))
        with writing(self._engine) as connection:
            lock_group(connection, optimizer.group)
            if int(connection.execute(select(func.count()).where(*managed)).scalar_one()) >= most:
                return False
            connection.execute(insert(schema.optimizer).values(_values(optimizer)))
        return True

    def register(self, optimizer: Optimizer) -> Optimizer:
        with writing(self._engine) as connection:
            lock_group(connection, optimizer.group)
            before = _newest_of(connection, optimizer)
            memory = reserved_memory(optimizer.memory_bytes, before, _memory_of_group(connection, optimizer.group))
            optimizer = replace(optimizer, memory_bytes=memory)
            if before is not None:
                optimizer = replace(optimizer, container=before.container, settings=before.settings)
                arrived = replace(optimizer, optimizer_id=before.optimizer_id, started_at=before.started_at)
                # It may be given up just now, and then it needs a row of its own too.
                waits = (_optimizer.optimizer_id == before.optimizer_id, _optimizer.state == OptimizerState.STARTING)
                if connection.execute(update(schema.optimizer).where(*waits).values(_values(arrived))).rowcount == 1:
                    note_start(connection, arrived, optimizer.started_at)
                    return arrived
                # It may have been given up since the first look.
                if (_newest_of(connection, optimizer) or before).never_came:
                    optimizer = replace(optimizer, state=OptimizerState.DRAINING, why=_UNWANTED)
            connection.execute(insert(schema.optimizer).values(_values(optimizer)))
        return optimizer

    def optimizer(self, optimizer_id: str) -> Optimizer | None:
        row = self._first(select(schema.optimizer).where(_optimizer.optimizer_id == optimizer_id))
        return None if row is None else _of(row)

    def optimizers(self, *, live: bool = False) -> Sequence[Optimizer]:
        query = select(schema.optimizer).order_by(_optimizer.started_at, _optimizer.optimizer_id)
        if live:
            query = query.where(_optimizer.state.in_(_LIVE))
        return tuple(map(_of, self._rows(query)))

    def touch(
        self, optimizer_id: str, now: datetime, told: SlotTotals | None = None, driver_gc: DriverGc | None = None
    ) -> Optimizer | None:
        mine = (_optimizer.optimizer_id == optimizer_id, _optimizer.state.in_(_HEARD))
        with writing(self._engine) as connection:
            row = connection.execute(select(schema.optimizer).where(*mine).with_for_update()).first()
            if row is None:
                return None
            values: dict[str, Any] = {"touched_at": now, **({} if told is None else note_slots(connection, row, now, told))}
            if driver_gc is not None:
                values["driver_gc"] = observed(row.driver_gc, driver_gc)
            connection.execute(update(schema.optimizer).where(*mine).values(values))
        return replace(_of(row), **values)

    def note_application(self, optimizer_id: str, application: str) -> None:
        attempt, task = schema.attempt.c, schema.task.c
        held = select(task.attempt_id).where(task.owner == optimizer_id, task.status == TaskStatus.EXECUTING)
        untold = update(schema.attempt).where(attempt.attempt_id.in_(held), attempt.application == "")
        with writing(self._engine) as connection:
            connection.execute(update(schema.optimizer).where(_optimizer.optimizer_id == optimizer_id).values(application=application))
            connection.execute(untold.values(application=application))

    def note_first_poll(self, optimizer_id: str, now: datetime) -> None:
        first = (_optimizer.optimizer_id == optimizer_id, _optimizer.first_polled_at.is_(None))
        self._write(update(schema.optimizer).where(*first).values(first_polled_at=now))

    def note_poll(self, optimizer_id: str, poll_id: str, attempts: Sequence[str]) -> None:
        values = {"poll_id": poll_id, "polled": tuple(attempts)}
        self._write(update(schema.optimizer).where(_optimizer.optimizer_id == optimizer_id).values(values))

    def move(self, optimizer_id: str, states: Sequence[OptimizerState], to: OptimizerState, why: str, *, failed: bool = False) -> bool:
        allowed = (_optimizer.optimizer_id == optimizer_id, _optimizer.state.in_(states))
        return self._write(update(schema.optimizer).where(*allowed).values(state=to, why=why, failed=failed)) == 1

    def ask(self, optimizer_id: str, *, log_level: str | None = None, stack_request: str | None = None) -> bool:
        given = {"log_level": log_level, "stack_request": stack_request}
        values = {name: value for name, value in given.items() if value is not None}
        mine = (_optimizer.optimizer_id == optimizer_id, _optimizer.state.in_(_HEARD))
        return self._write(update(schema.optimizer).where(*mine).values(values)) == 1

    def lose_silent(self, touched_before: datetime, why: str) -> Sequence[str]:
        silent = (_optimizer.state.in_(_HEARD), _optimizer.touched_at <= touched_before)
        with writing(self._engine) as connection:
            lost = tuple(connection.execute(select(_optimizer.optimizer_id).where(*silent)).scalars())
            if lost:
                connection.execute(
                    update(schema.optimizer).where(*silent, _optimizer.optimizer_id.in_(lost)).values(state=OptimizerState.LOST, why=why)
                )
        return lost

    def expire(self, before: datetime) -> int:
        with writing(self._engine) as connection:
            gone = (_optimizer.state.not_in(_LIVE), _optimizer.touched_at < before)
            return connection.execute(delete(schema.optimizer).where(*gone)).rowcount


def _memory_of_group(connection: Connection, name: str) -> int | None:
    """How much memory an optimizer of a group gets. It is no secret, so it stands among the properties that are not encrypted."""
    properties = connection.execute(select(schema.group.c.properties).where(schema.group.c.name == name)).scalar_one()
    return ResourceGroup(name, properties=properties).number(MEMORY)


def _newest_of(connection: Connection, optimizer: Optimizer) -> Optimizer | None:
    """The optimizer of the same group that has this resource id: the one that is on its way, or else the newest one."""
    if not optimizer.resource_id:
        return None
    same = (_optimizer.group == optimizer.group, _optimizer.resource_id == optimizer.resource_id)
    query = select(schema.optimizer).where(*same).order_by(_optimizer.started_at.desc(), _optimizer.optimizer_id.desc())
    found = [_of(row) for row in connection.execute(query)]
    return next((each for each in found if each.state is OptimizerState.STARTING), found[0] if found else None)


def _values(optimizer: Optimizer) -> dict[str, object]:
    return {column.name: getattr(optimizer, column.name) for column in schema.optimizer.columns}


def _of(row: Row[tuple[object, ...]]) -> Optimizer:
    return Optimizer(**row._mapping)
