"""Commits of merged change files to a change store: in place of exactly the files that were merged, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.errors import CommitConflict, CommitStateUnknown, RacesLost, StorageUnavailable
from compaction_pipeline.core.tables.data_file import LiveFile, OutputFile
from compaction_pipeline.iceberg.keyed.replace_changes import replace_changes
from compaction_pipeline.iceberg.keyed.stores import KeyedStores, load_stores
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline_tests.keyed.change_logs import SCHEMA, ChangeLog, row
from compaction_pipeline_tests.keyed.compacted import Compacted
from compaction_pipeline_tests.keyed.written import BY_REGION
from compaction_pipeline_tests.reference_reader import bag_difference


class Log(Compacted):
    """A change store with two insert files, a delete file between them, and what a merge of the insert files would write."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.commit(self.changes(1, "I", 0, [(row(1), 1), (row(2), 2)]))
        self.commit(self.changes(1, "ED", 0, [(row(1), 1)]))
        self.commit(self.changes(1, "I", 0, [(row(1, v="new"), 1)]))
        self.rows = [row(2), row(1, v="new")]
        self.inserts = [file for file in self.change_files() if "-I-" in file.path]
        self.merged = self.changes(1, "I", 0, [(row(1), 1, 1), (row(2), 2, 1), (row(1, v="new"), 1, 3)])

    def stores(self) -> KeyedStores:
        return load_stores(self.catalog, ("db", "t"))

    def replace(self, stores: KeyedStores | None = None) -> int:
        return replace_changes(stores or self.stores(), self.inserts, [self.merged], lambda seconds: None)

    def swap(self, added: list[tuple[OutputFile, int | None]], removed: list[LiveFile]) -> None:
        """What another program does to the change store."""
        transaction = Transaction(self.change.refresh())
        struct = partition_struct(self.change.metadata, self.change.spec().spec_id)
        files = [AddedFile(data_file_of(file, struct), sequence) for file, sequence in added]
        transaction.stage(SnapshotChange(Operation.OVERWRITE, files, removed))
        transaction.commit()

    def check_rows(self, *more: Any) -> None:
        assert bag_difference(self.scanned(), [*self.rows, *more]) == ""


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_readers_see_the_same_rows_in_fewer_files(log: Log) -> None:
    log.check_rows()
    assert log.replace() == 4
    log.check_rows()
    merged, deletes = sorted(log.change_files(), key=lambda file: "-ED-" in file.path)
    assert (merged.path, merged.data_sequence_number) == (log.merged.path, 3)
    assert "-ED-" in deletes.path
    snapshot = log.change.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.OVERWRITE
    # A merge into the base store reads the merged file row by row.
    assert log.compactions.compact() is not None
    log.check_rows()


def test_a_merge_into_the_base_store_that_was_planned_before_still_lands(log: Log) -> None:
    tasks = log.compactions.merge(log.compactions.plan())
    log.replace()
    assert len(log.compactions.commit(tasks).committed) == len(tasks)
    log.check_rows()


def test_a_writer_who_is_faster_loses_nothing(log: Log) -> None:
    def race(commit: Callable[[], None]) -> None:
        log.insert(row(7))
        commit()

    log.catalog.in_place_of_commits("t_change_", race)
    assert log.replace() == 5
    log.check_rows(row(7))


def test_two_merges_of_one_file_do_not_both_land(log: Log) -> None:
    second, stores = log.changes(1, "I", 0, [(row(1), 1, 1), (row(2), 2, 1), (row(1, v="new"), 1, 3)]), log.stores()

    def race(commit: Callable[[], None]) -> None:
        replace_changes(stores, log.inserts, [second], lambda seconds: None)
        commit()

    log.catalog.in_place_of_commits("t_change_", race)
    with pytest.raises(CommitConflict, match="no longer live: another merge took it"):
        log.replace()
    log.check_rows()


def test_a_file_with_another_sequence_number_is_not_replaced(log: Log) -> None:
    first = log.inserts[0]
    entry = OutputFile(first.path, first.content, first.spec_id, first.partition, first.file_size_bytes, first.record_count)
    log.swap([(entry, 2)], [first])
    with pytest.raises(CommitConflict, match="has the data sequence number 2, but it had 3 at the plan"):
        log.replace()


def test_a_file_that_is_live_twice_is_not_replaced(log: Log) -> None:
    first = log.inserts[0]
    entry = OutputFile(first.path, first.content, first.spec_id, first.partition, first.file_size_bytes, first.record_count)
    log.swap([(entry, 1)], [])
    with pytest.raises(CommitConflict, match="live more than once"):
        log.replace()


def test_a_change_store_that_was_created_anew_is_left_alone(log: Log) -> None:
    stores = log.stores()
    properties = log.change.properties
    log.catalog.drop_table("db.t_change_")
    log.change = log.catalog.create_table("db.t_change_", SCHEMA, properties=properties)
    with pytest.raises(StorageUnavailable, match="Table UUID does not match"):
        log.replace(stores)
    assert not log.change_files()


def test_a_merged_file_of_another_partition_is_refused(tmp_path: Path) -> None:
    log = ChangeLog(tmp_path, spec=BY_REGION)
    log.commit(log.changes(1, "I", 0, [(row(1, "eu"), 1)]))
    log.commit(log.changes(1, "I", 0, [(row(2, "eu"), 1)]))
    stray = log.changes(1, "I", 0, [(row(1, "us"), 1, 1)])
    with pytest.raises(CommitConflict, match="is of another partition"):
        replace_changes(load_stores(log.catalog, ("db", "t")), log.change_files(), [stray])


def test_an_answer_that_is_lost_lands_once(log: Log) -> None:
    def lost(commit: Callable[[], None]) -> None:
        commit()
        raise ConnectionError("the answer got lost")

    log.catalog.in_place_of_commits("t_change_", lost)
    assert log.replace() == 4
    log.check_rows()


def test_a_request_that_was_sent_twice_lands_once(log: Log) -> None:
    def twice(commit: Callable[[], None]) -> None:
        commit()
        raise CommitFailedException("the second request lost against the first")

    log.catalog.in_place_of_commits("t_change_", twice)
    assert log.replace() == 4
    log.check_rows()


def test_a_request_that_never_arrives_leaves_the_files_as_they_are(log: Log) -> None:
    def lost(commit: Callable[[], None]) -> None:
        raise ConnectionError("the catalog is gone")

    log.catalog.in_place_of_commits("t_change_", lost)
    with pytest.raises(CommitStateUnknown):
        log.replace()
    assert len(log.change_files()) == 3
    log.check_rows()


def test_a_merge_that_loses_every_race_changes_nothing(log: Log) -> None:
    def lost(commit: Callable[[], None]) -> None:
        raise CommitFailedException("somebody was faster")

    log.catalog.in_place_of_commits("t_change_", *[lost] * 20)
    with pytest.raises(RacesLost):
        log.replace()
    log.check_rows()
