"""The query that finds the next task follows an index: it sorts nothing and scans nothing, however many tasks wait."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.engine import Connection

from compaction_pipeline.core.queue.group import CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage.engine import open_state
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.behaviours.example_tasks import LEASE, example, make_groups
from compaction_pipeline_tests.builders import NOW, TABLE

TASKS = 2_000
MANY_TASKS = 16_000
"""So many that the indexes of PostgreSQL differ in height, and so in what it thinks that they cost."""


@contextmanager
def plans_of_ordered_queries() -> Iterator[list[Any]]:
    """Collect how the database answers each query with an order that is sent meanwhile. It is asked in the transaction of the query."""
    plans: list[Any] = []

    def explain(connection: Connection, cursor: object, statement: str, parameters: Any, context: object, many: bool) -> None:
        if "ORDER BY" not in statement or statement.startswith("EXPLAIN"):
            return
        if connection.dialect.name == "sqlite":
            plans.append([row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)])
            return
        answer = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
        plans.append((json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"])

    event.listen(Engine, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        event.remove(Engine, "before_cursor_execute", explain)


def filled(url: str, counted: bool) -> None:
    """A state with many waiting tasks in two queues. The first of them are over. PostgreSQL has `counted` the rows, or never will."""
    stores = open_stores(url)
    engine = open_state(url)
    is_postgres = engine.dialect.name == "postgresql"
    if is_postgres:
        with engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE compaction_task SET (autovacuum_enabled = false)")
    make_groups(stores, "light", "heavy")
    tasks = [
        example(f"t{number:05}", queue="light" if number % 2 else "heavy", priority=number % 5, created_at=NOW + timedelta(seconds=number))
        for number in range(MANY_TASKS if is_postgres and not counted else TASKS)
    ]
    assert stores.tasks.insert(tasks, [], NOW)
    for _ in range(20):
        assert stores.tasks.poll(None, "me", NOW, LEASE)
    if is_postgres and counted:
        with engine.begin() as connection:
            connection.exec_driver_sql("ANALYZE compaction_task")
    engine.dispose()
    stores.close()


def visited(plan: Mapping[str, Any]) -> int:
    """How many rows the steps of a plan of PostgreSQL have read, the ones that a filter removed included."""
    below = [visited(step) for step in plan.get("Plans", [])]
    return sum(below) + int(plan["Actual Rows"]) + int(plan.get("Rows Removed by Filter", 0))


def steps_of(plan: Mapping[str, Any]) -> list[str]:
    """The names of the steps of a plan of PostgreSQL."""
    return [str(plan["Node Type"]), *(name for step in plan.get("Plans", []) for name in steps_of(step))]


_TURN = "(queue=? AND status=? AND paused=?)"


@pytest.mark.parametrize(
    ("queue", "order", "turns", "index"),
    [
        (None, QueueOrder.PRIORITY, (), "compaction_task_poll (status=? AND paused=?)"),
        ("light", QueueOrder.PRIORITY, (), f"compaction_task_poll_queue {_TURN}"),
        ("light", QueueOrder.FIFO, (), f"compaction_task_poll_fifo {_TURN}"),
        ("light", QueueOrder.QUOTA, (TABLE,), "compaction_task_poll_table (queue=? AND status=? AND paused=? AND identifier=?)"),
    ],
)
@pytest.mark.parametrize("counted", [False, True])
def test_finding_the_next_task_sorts_nothing(
    state_url: str, queue: str | None, order: QueueOrder, turns: tuple[TableIdentifier, ...], index: str, counted: bool
) -> None:
    """Also before PostgreSQL has `counted` the rows of many tasks that arrive at once: it takes the table for empty then."""
    filled(state_url, counted)
    stores = open_stores(state_url)
    if queue is not None:
        stores.groups.change(ResourceGroup(queue, queue=CompactionQueue(order=order)))
    with plans_of_ordered_queries() as plans:
        assert stores.tasks.poll(queue, "me", NOW, LEASE, None, turns)
    looked, claimed = plans
    for plan in (claimed,) if turns else (looked, claimed):
        if isinstance(plan, list):
            assert len(plan) == 1, plan
            assert index in plan[0], plan
        else:
            assert not {"Sort", "Seq Scan", "Bitmap Heap Scan"} & set(steps_of(plan)), plan
            assert visited(plan) <= 3 + 10, plan
    stores.close()
