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


@contextmanager
def ordered_queries() -> Iterator[list[tuple[str, object]]]:
    """Collect each query with an order that is sent meanwhile, with its parameters."""
    asked: list[tuple[str, object]] = []

    def keep(connection: Connection, cursor: object, statement: str, parameters: object, context: object, many: bool) -> None:
        if "ORDER BY" in statement:
            asked.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", keep)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", keep)


def filled(url: str) -> None:
    """A state with many waiting tasks in two queues. Most of those that came first are over."""
    stores = open_stores(url)
    make_groups(stores, "light", "heavy")
    tasks = [
        example(f"t{number:05}", queue="light" if number % 2 else "heavy", priority=number % 5, created_at=NOW + timedelta(seconds=number))
        for number in range(TASKS)
    ]
    assert stores.tasks.insert(tasks, [], NOW)
    for _ in range(20):
        assert stores.tasks.poll(None, "me", NOW, LEASE)
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
def test_finding_the_next_task_sorts_nothing(
    state_url: str, queue: str | None, order: QueueOrder, turns: tuple[TableIdentifier, ...], index: str
) -> None:
    filled(state_url)
    stores = open_stores(state_url)
    if queue is not None:
        stores.groups.change(ResourceGroup(queue, queue=CompactionQueue(order=order)))
    with ordered_queries() as asked:
        assert stores.tasks.poll(queue, "me", NOW, LEASE, None, turns)
    looked, claimed = asked
    queries = (claimed,) if turns else (looked, claimed)
    engine = open_state(state_url)
    with engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql("ANALYZE compaction_task")
        for statement, parameters in queries:
            if engine.dialect.name == "sqlite":
                found = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                assert len(found) == 1, found
                assert index in found[0], found
                continue
            answer = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
            plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
            assert not {"Sort", "Seq Scan", "Bitmap Heap Scan"} & set(steps_of(plan)), plan
            assert visited(plan) <= 3 + 10, plan
    stores.close()
