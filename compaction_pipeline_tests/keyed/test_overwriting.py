"""Insert-overwrites: partitions of the base store are replaced, whatever else writes to both stores meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import RacesLost
from compaction_pipeline.core.tables.keyed.file_names import base_file
from compaction_pipeline.core.tables.keyed.key_hash import key_hash
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.keyed import overwrite as overwriting
from compaction_pipeline_tests.keyed.base_commits import BaseCommits
from compaction_pipeline_tests.keyed.overwrites import Overwritten, between, table_of
from compaction_pipeline_tests.keyed.written import BY_REGION, row
from compaction_pipeline_tests.reference_reader import Row, bag_difference, live_entries, metadata_of, reference_rows


@pytest.fixture
def keyed(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path)


@pytest.fixture
def regions(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path, key=("id", "region"), spec=BY_REGION)


# ---- what is replaced


def test_the_partitions_of_the_rows_are_replaced_and_others_stay(regions: Overwritten) -> None:
    regions.insert(row(1, "a", "eu"), row(2, "b", "eu"), row(1, "a", "us"), row(1, "a", None))
    number = regions.overwrite(row(2, "new", "eu"), row(9, "new", "mars"))
    assert number == 2
    expected = [row(2, "new", "eu"), row(9, "new", "mars"), row(1, "a", "us"), row(1, "a", None)]
    regions.check(expected)
    assert regions.sequences() == {("eu",): 2, ("mars",): 2}
    regions.write(("DELETE", row(2, None, "eu")), ("DELETE", row(1, None, "us")), ("INSERT", row(3, "later", "eu")))
    regions.check([row(3, "later", "eu"), row(9, "new", "mars"), row(1, "a", None)])
    assert regions.compactions.compact(CompactionType.FULL) is not None
    regions.check([row(3, "later", "eu"), row(9, "new", "mars"), row(1, "a", None)])


def test_all_rows_of_a_table_without_partitions_are_replaced(keyed: Overwritten) -> None:
    keyed.insert(row(1, "a"), row(2, "b"))
    keyed.compactions.compact()
    keyed.insert(row(3, "c"))
    keyed.overwrite(row(7, "new"), row(7, "twice"))
    keyed.check([row(7, "new"), row(7, "twice")])
    assert bag_difference(reference_rows(keyed.stores()[0].metadata_location), keyed.table.scan().to_arrow().to_pylist()) == ""


def test_base_files_go_with_the_deletes_that_apply_to_them(tmp_path: Path) -> None:
    log = BaseCommits(tmp_path)
    whole: Row = {"id": 1, "region": None, "ts": None, "v": None}
    log.commit(log.changes(1, "I", 0, [(whole, 1)]))
    log.commit_base(log.base_rows(1, 1, [whole, {**whole, "id": 2}]), sequences={"": 1})
    log.delete_rows(log.base_paths()[0], 0)
    KeyedTable.open(log.catalog, "db.t").insert_overwrite(table_of([row(1, "new")], log.base.schema()))
    log.check([{**whole, "v": "new"}])
    assert [file.is_data for file in log.base_files()] == [True]


def test_the_commit_is_a_transaction_of_amoro(tmp_path: Path) -> None:
    keyed = Overwritten(tmp_path, key=("region", "id"), spec=BY_REGION, buckets=8)
    keyed.insert(row(0, "old", "l'été"))
    rows = [row(number, "v", region) for number in range(20) for region in ("l'été", None)]
    number = keyed.overwrite(*rows)
    keyed.check(rows)
    base, change = keyed.stores()
    begin, snapshot = change.current_snapshot(), base.current_snapshot()
    assert begin is not None
    assert begin.summary is not None
    assert (begin.sequence_number, begin.summary.operation) == (number, Operation.APPEND)
    assert begin.summary["tx.begin.signature"]
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.OVERWRITE
    flags = ("txId", "optimized-sequence.exist", "base-optimized-time.exist")
    assert [snapshot.summary[key] for key in flags] == [str(number), "true", "true"]
    for entry in live_entries(metadata_of(base)):
        region, named = entry.file["partition"]["region"], base_file(entry.path)
        numbers = [each["id"] for each in rows if each["region"] == region]
        of_node = [n for n in numbers if DataTreeNode.of_hash(7, key_hash([region, n], ["string", "long"])) == named.node]
        assert entry.file["record_count"] == len(of_node) > 0
        folder = {"l'été": "region=l%27%C3%A9t%C3%A9", None: "region=null"}[region]
        assert f"/data/{folder}/{named.node.id}-B-{number}-00000-0-" in entry.path
    # The transaction has ended, so it holds nothing back.
    keyed.insert(row(99, "later", None))
    assert keyed.compactions.plan()
    assert {plan.tasks[0].changes.up_to for plan in keyed.compactions.partitions if plan.tasks and plan.tasks[0].changes} == {3}


def test_without_rows_nothing_is_replaced(keyed: Overwritten) -> None:
    keyed.insert(row(1))
    assert keyed.overwrite() is None
    assert len(keyed.stores()[1].metadata.snapshots) == 1
    assert keyed.overwrite(sink_id="a", batch=4) == 2
    assert keyed.overwrite(row(2), sink_id="a", batch=4) is None
    keyed.check([row(1)])


# ---- changes, merges and other overwrites meanwhile


def test_changes_that_land_while_rows_are_written_apply_to_them(keyed: Overwritten) -> None:
    keyed.insert(row(1, "old"))
    between(keyed.catalog, lambda: keyed.write(("DELETE", row(1)), ("DELETE", row(2)), ("INSERT", row(3, "later"))))
    assert keyed.overwrite(row(1, "new"), row(2, "new"), row(4, "new")) == 2
    keyed.check([row(3, "later"), row(4, "new")])
    assert keyed.compactions.compact() is not None
    keyed.check([row(3, "later"), row(4, "new")])


def test_a_merge_that_was_planned_before_is_not_committed_after(regions: Overwritten) -> None:
    regions.insert(row(1, "a", "eu"), row(1, "a", "us"))
    regions.compactions.compact()
    regions.write(("DELETE", row(1, None, "eu")), ("INSERT", row(2, "b", "eu")), ("INSERT", row(2, "b", "us")))
    tasks = regions.compactions.merge(regions.compactions.plan())
    regions.overwrite(row(1, "new", "eu"))
    outcome = regions.compactions.commit(tasks)
    assert outcome.state is CommitState.COMMITTED
    assert {task.work.node.partition[0].value for task in tasks if task.task_id in outcome.committed} == {"us"}
    assert all("the optimized sequence of its partition is 3, but 1 was planned with" in each for each in outcome.conflicts.values())
    assert outcome.conflicts
    regions.check([row(1, "new", "eu"), row(1, "a", "us"), row(2, "b", "us")])


def test_a_merge_while_rows_are_written_stays_below_the_transaction(keyed: Overwritten) -> None:
    keyed.insert(row(1, "old"))

    def change_and_compact() -> None:
        keyed.insert(row(2, "later"))
        assert keyed.compactions.compact() is not None
        assert keyed.sequences() == {(): 1}

    between(keyed.catalog, change_and_compact)
    assert keyed.overwrite(row(1, "new")) == 2
    assert keyed.sequences() == {(): 2}
    keyed.check([row(1, "new"), row(2, "later")])


def test_an_overwrite_that_took_too_long_begins_again(keyed: Overwritten) -> None:
    keyed.insert(row(1, "old"))
    with keyed.stores()[0].transaction() as base:
        base.set_properties({"compaction.transaction.timeout": "1"})

    def change_and_compact() -> None:
        keyed.insert(row(2, "before"))
        assert keyed.compactions.compact() is not None
        assert keyed.sequences() == {(): 3}
        merged.extend(keyed.base_paths())

    merged: list[str] = []
    between(keyed.catalog, change_and_compact)
    assert keyed.overwrite(row(1, "new")) == 4
    keyed.check([row(1, "new")])
    assert keyed.stored() == len(merged) + 1, "the file of the first try is gone; older snapshots still have those of the merge"


def test_an_overwrite_that_is_always_passed_gives_up_and_leaves_no_file(keyed: Overwritten) -> None:
    # Each of the others is written during one try, and nothing happens while its own rows are written.
    between(keyed.catalog, *[lambda: keyed.overwrite(row(7, "other")), lambda: None] * overwriting._BEGINNINGS)
    with pytest.raises(RacesLost, match=r"changes up to \d+ went into the base store, and the overwrite is transaction"):
        keyed.overwrite(row(1, "new"))
    keyed.check([row(7, "other")])
    assert keyed.stored() == overwriting._BEGINNINGS


@pytest.mark.parametrize("when", ["after the rows are written", "before the swap"])
def test_of_two_overwrites_at_once_the_one_that_is_committed_last_counts(keyed: Overwritten, when: str) -> None:
    keyed.insert(row(1, "old"))

    def other() -> None:
        keyed.overwrite(row(2, "other"))
        keyed.check([row(2, "other")])

    if when == "before the swap":

        def race(commit: Callable[[], None]) -> None:
            other()
            commit()

        keyed.catalog.in_place_of_commits("t", race)
    else:
        between(keyed.catalog, other)
    # The other one is transaction 3, so this one begins again.
    assert keyed.overwrite(row(1, "new")) == 4
    keyed.check([row(1, "new")])


def test_an_earlier_overwrite_that_is_committed_later_replaces_nothing_of_other_partitions(regions: Overwritten) -> None:
    def race(commit: Callable[[], None]) -> None:
        regions.overwrite(row(1, "other", "us"))
        commit()

    regions.catalog.in_place_of_commits("t", race)
    assert regions.overwrite(row(1, "new", "eu")) == 1
    regions.check([row(1, "new", "eu"), row(1, "other", "us")])
    assert regions.sequences() == {("eu",): 1, ("us",): 2}


def test_a_lost_race_is_tried_on_the_new_head(regions: Overwritten) -> None:
    regions.insert(row(1, "a", "eu"), row(1, "a", "us"))

    def race(commit: Callable[[], None]) -> None:
        assert regions.compactions.compact() is not None
        commit()

    regions.catalog.in_place_of_commits("t", race)
    assert regions.overwrite(row(2, "new", "eu")) == 2
    regions.check([row(2, "new", "eu"), row(1, "a", "us")])
    assert regions.sequences() == {("eu",): 2, ("us",): 1}
    assert len(list(Path(regions.stores()[0].location().removeprefix("file://")).glob("data/puffin/*"))) == 2
