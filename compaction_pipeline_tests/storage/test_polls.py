from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.engine import Connection

from compaction_pipeline.storage.engine import open_state
from compaction_pipeline.storage.stores import open_stores


@pytest.mark.parametrize("queue", [None, "default"])
def test_finding_the_next_task_sorts_nothing(tmp_path: Path, queue: str | None) -> None:
    url = f"sqlite:///{tmp_path / 'state.db'}"
    stores = open_stores(url)
    asked: list[tuple[str, object]] = []

    def keep(connection: Connection, cursor: object, statement: str, parameters: object, context: object, many: bool) -> None:
        if "ORDER BY" in statement:
            asked.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", keep)
    try:
        assert stores.tasks.first_waiting(queue) is None
    finally:
        event.remove(Engine, "before_cursor_execute", keep)
    [(statement, parameters)] = asked
    with open_state(url).connect() as connection:
        steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    assert any("compaction_task_poll (status=? AND paused=? AND priority=?)" in step for step in steps), steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
