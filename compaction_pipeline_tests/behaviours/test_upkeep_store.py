from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline_tests.builders import NOW, TABLE

DAY = timedelta(days=1)
ETL = Consumer(TABLE, "etl", TABLE, "uuid", 2**63 - 1, NOW, NOW + DAY)
OF_OTHER = replace(ETL, table=replace(TABLE, name="a"))


def test_a_consumer_is_set_moved_and_removed_and_those_of_other_tables_stay(stores: Stores) -> None:
    assert list(stores.upkeep.consumers()) == []
    for one in (ETL, replace(ETL, name="b"), OF_OTHER):
        stores.upkeep.set_consumer(one)
    moved = replace(ETL, snapshot_id=3, until=NOW + 2 * DAY, missing_at=NOW)
    stores.upkeep.set_consumer(moved)
    assert list(stores.upkeep.consumers()) == [OF_OTHER, replace(ETL, name="b"), moved]
    stores.upkeep.remove_consumer(TABLE, "etl")
    stores.upkeep.remove_consumer(TABLE, "no such consumer")
    assert list(stores.upkeep.consumers()) == [OF_OTHER, replace(ETL, name="b")]


def test_consumers_that_ended_before_a_time_are_removed_by_the_newest_end_that_was_set(stores: Stores) -> None:
    for one in (ETL, OF_OTHER, replace(ETL, until=NOW + 2 * DAY)):
        stores.upkeep.set_consumer(one)
    assert stores.upkeep.expire(NOW + DAY + timedelta(seconds=1)) == 0
    assert [one.until for one in stores.upkeep.consumers()] == [NOW + 2 * DAY]
