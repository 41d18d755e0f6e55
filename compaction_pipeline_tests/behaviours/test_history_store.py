from __future__ import annotations

from datetime import timedelta

from compaction_pipeline.core.insight.comparison import Comparison
from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.builders import NOW, TABLE


def test_the_history_is_replaced_whole_and_read_oldest_first(stores: Stores) -> None:
    old, new = FilesPoint(NOW, 5, 0), FilesPoint(NOW + timedelta(minutes=1), 2**40, -3)
    assert stores.history.points() == ()
    stores.history.replace([new, old])
    assert stores.history.points() == (old, new)
    stores.history.replace([new])
    stores.history.replace([new])
    assert stores.history.points() == (new,)


def test_the_last_comparison_of_a_table_stays_until_the_table_is_forgotten(stores: Stores) -> None:
    assert stores.history.comparisons() == {}
    stores.index.add(TABLE)
    for last in (Comparison("r1", "s3://lake/v1.json", "a snapshot is missing"), Comparison("r2", "s3://lake/v2.json", None)):
        stores.history.keep_comparison(TABLE, last)
        assert stores.history.comparisons() == {TABLE: last}
    stores.index.forget(TABLE)
    assert stores.history.comparisons() == {}
