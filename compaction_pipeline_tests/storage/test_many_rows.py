"""Many rows are written by one statement as they would be one by one, on both databases."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import insert, select

from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import open_state, upsert, writing
from compaction_pipeline.storage.many_rows import insert_rows, update_rows
from compaction_pipeline.storage.stores import open_stores

JOB = schema.center_job
AT = datetime(2026, 1, 1, 2, 30, 0, 123456, tzinfo=timezone.utc)


def test_rows_are_inserted_updated_and_returned_with_texts_moments_and_nulls_of_any_kind(state_url: str) -> None:
    open_stores(state_url).close()
    texts = ["plain", "ä'\"\\{},;%s", "NULL", "", " 日本 "]
    rows = [{"name": f"job {text}", "project": text, "biz": text, "at": AT} for text in texts]
    engine = open_state(state_url)
    with writing(engine) as connection:
        insert_rows(connection, insert(JOB), rows)
        # A column of which every value is null.
        insert_rows(connection, insert(JOB), [{"name": "last", "project": "p", "biz": "b", "at": None}])
        changed = [{"name": "last", "biz": "later", "at": AT}, {"name": "job plain", "biz": "later", "at": None}]
        update_rows(connection, JOB, "name", changed)
        update_rows(connection, JOB, "name", [{"name": "nobody", "biz": "later", "at": AT}])
        again = upsert(connection, JOB).on_conflict_do_nothing(index_elements=["name"]).returning(JOB.c.name)
        fresh = insert_rows(connection, again, [rows[0], {**rows[0], "name": "new"}]).scalars().all()
    with writing(engine) as connection:
        found = {row.name: (row.project, row.biz, row.at) for row in connection.execute(select(JOB))}
    engine.dispose()
    assert fresh == ["new"]
    assert found == {
        **{row["name"]: (row["project"], row["biz"], AT) for row in rows[1:]},
        "job plain": ("plain", "later", None),
        "last": ("p", "later", AT),
        "new": ("plain", "plain", AT),
    }
