"""The mirror makes one event for each committed node and record, page by page, and leaves none out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.defs.mirror import events_of, page_of
from compaction_pipeline_tests.defs.values import day, overview, record, task
from compaction_pipeline_tests.plain_names import COMPACTED_FILES, COMPACTION_RECORDS, NAMES


def _tasks(found: CompactionRecord) -> Mapping[str, Sequence[CompactionTask]]:
    """One task for each node, by the keys of the nodes."""
    return {overview(number).key: [task(task_id, number)] for number, task_id in enumerate(found.task_ids, 1)}


def test_every_committed_node_has_one_event_and_the_event_of_the_record_comes_last() -> None:
    found = record(task_ids=("t1", "t2"))
    first, second = _tasks(found).items()
    # A task that was not committed changes nothing, whether its node has another task or not.
    tasks = dict([second, (first[0], [*first[1], task("t3", 1)]), (overview(3).key, [task("t4", 3)])])
    events = events_of(NAMES, found, tasks)
    assert [(event.asset_key, event.partition) for event in events] == [
        (COMPACTED_FILES, overview(1).key),
        (COMPACTED_FILES, overview(2).key),
        (COMPACTION_RECORDS, "lake.shop.orders"),
    ]


def test_a_task_that_met_a_conflict_makes_no_node_green() -> None:
    found = record(task_ids=("t1", "t2"), committed_task_ids=("t2",), conflicts={"t1": "conflict: input gone"})
    assert [event.partition for event in events_of(NAMES, found, _tasks(found))] == [overview(2).key, "lake.shop.orders"]


@pytest.mark.parametrize("status", [RecordStatus.FAILED, RecordStatus.UNKNOWN, RecordStatus.OPEN])
def test_a_record_that_was_not_committed_has_no_events(status: RecordStatus) -> None:
    assert events_of(NAMES, record(status=status), _tasks(record())) == []


def test_figures_of_a_node_are_those_of_its_own_tasks() -> None:
    found = record(task_ids=("t1", "t2"))
    metadata = events_of(NAMES, found, _tasks(found))[0].metadata
    assert metadata["node"].value == str(day(1))
    assert metadata["merged_files_count"].value == 3
    assert metadata["deleted_rows_count"].value == 15
    assert metadata["rows_count"].value == 285


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 500])
def test_pages_have_every_event_once_and_in_order(limit: int) -> None:
    records = [record(f"r{number}", tuple(f"t{number}-{i}" for i in range(number))) for number in range(1, 6)]
    whole = [event for found in records for event in events_of(NAMES, found, _tasks(found))]
    told: list[str] = []
    events = []
    offset = 0
    while len(told) < len(records):
        page = page_of(NAMES, [found for found in records if found.record_id not in told], _tasks, limit, offset)
        assert len(page.events) <= limit
        events += page.events
        told += page.told
        offset = page.offset
    assert [(event.asset_key, event.partition) for event in events] == [(event.asset_key, event.partition) for event in whole]
    assert told == [found.record_id for found in records]


def test_records_without_events_are_mirrored_too() -> None:
    page = page_of(NAMES, [record("r1", status=RecordStatus.FAILED), record("r2")], _tasks, 10)
    assert page.told == ("r1", "r2")
