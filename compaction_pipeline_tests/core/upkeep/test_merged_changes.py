"""Which merged change files expire: laws on random keyed tables, whose readers may be at any snapshot of the base store, and examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.keyed.refusals import refuse_set_back
from compaction_pipeline.core.planning.keyed.to_base import plan_to_base
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import key_of
from compaction_pipeline.core.tables.node import Partition, PartitionValue
from compaction_pipeline.core.upkeep.merged_changes import ChangeHistory, MergedChanges, decide_merged_changes
from compaction_pipeline_tests.core.planning.keyed.simulation import FIELDS, PARTITIONS, SimTable
from compaction_pipeline_tests.core.planning.keyed.writers import Writers, options

NOW, WEEK = datetime(2026, 11, 23, 12, tzinfo=timezone.utc), timedelta(days=7)
EU, US = PARTITIONS


def sequences(numbers: Mapping[Partition, int]) -> OptimizedSequences:
    return OptimizedSequences(FIELDS, {key_of(partition, FIELDS): number for partition, number in numbers.items()})


def overwritten(table: SimTable, transaction: int, partition: Partition) -> SimTable:
    """The table after an insert-overwrite of Amoro has ended, without rows. It takes the optimized sequence back to its transaction."""
    table.base = {path: file for path, file in table.base.items() if file.live.partition != partition}
    table.above[partition] = transaction
    return table


class Table(Writers):
    """A table with the snapshots of its base store, and a twin of it from which nothing expires. `kept` are the tables of old readers."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.kept: list[SimTable] = [self.table.copied()]
        self.expired = 0

    def committed(self) -> None:
        self.kept.append(self.table.copied())

    def compact(self) -> None:
        # Amoro's optimizer does not wait for open transactions.
        for plan in plan_to_base(self.table.files(), options(self.random, self.random.choice([self.open, []]))):
            if plan.tasks:
                self.table.commit(plan.tasks)
        self.committed()

    def overwrite(self) -> None:
        if self.open:
            overwritten(self.table, self.open.pop(0), self.random.choice(PARTITIONS))
            self.committed()

    def roll_back(self) -> None:
        older = self.random.choice(self.kept)
        self.table.base, self.table.above = dict(older.base), dict(older.above)

    def expire_base(self) -> None:
        self.kept = [*self.random.sample(self.kept, min(len(self.kept), self.random.randint(0, 2))), self.table.copied()]

    def readers(self) -> list[SimTable]:
        """The base store as each reader may see it, over the change files of now."""
        return [replace(each, changes=dict(self.table.changes)) for each in (*self.kept, self.table)]

    def decided(self) -> MergedChanges:
        readers = [(number, NOW, sequences(each.above)) for number, each in enumerate(self.readers())]
        return decide_merged_changes(self.table.files(), ChangeHistory(readers, {}, min(self.open, default=None), sequences({})), WEEK, NOW)

    def expire_changes(self) -> None:
        before = [reader.view() for reader in self.readers()]
        gone = self.decided()
        for file in gone.files:
            del self.table.changes[file.path]
        self.expired += len(gone.files)
        assert [reader.view() for reader in self.readers()] == before, "no reader, of whatever snapshot, sees another row"
        assert not self.decided().files, "a second decision finds nothing"
        for reader in self.readers():
            refuse_set_back("t", sequences(reader.above), sequences(gone.numbers))


@given(st.randoms(use_true_random=False))
def test_no_reader_of_any_kept_snapshot_misses_a_row_and_no_later_merge_differs(random: Random) -> None:
    table = Table(random)
    steps = [table.append, table.append, table.append, table.begin, table.land, table.give_up, table.land_late, table.merge_changes]
    for _ in range(random.randint(2, 6)):
        for _ in range(random.randint(1, 5)):
            random.choice(steps)()
        random.choice([table.compact, table.compact, table.roll_back, table.overwrite])()
        random.choice([table.expire_base, table.committed])()
        twin = table.table.copied()
        table.expire_changes()
        chosen = options(random, table.open)
        merged = table.table.copied()
        for transaction in table.open:
            ended = [overwritten(each.copied(), transaction, EU).view() for each in (twin, merged)]
            assert ended[0] == ended[1], "whichever open transaction ends, and takes the numbers back"
        for each in (twin, merged):
            for plan in plan_to_base(each.files(), chosen):
                if plan.tasks:
                    each.commit(plan.tasks)
        assert merged.view() == twin.view(), "a merge of what is left finds the same rows"
        assert merged.above == twin.above


def test_the_laws_are_about_tables_in_which_files_expire() -> None:
    expired = 0
    for seed in range(40):
        table = Table(Random(seed))
        for _ in range(6):
            table.append()
            table.compact()
            table.expire_base()
            table.expire_changes()
        expired += table.expired
    assert expired > 40


# ---- examples --------------------------------------------------------------------------------------------------------


def change(number: int, sequence: int | None = None, partition: Partition = EU, *, snapshot: int = 0) -> LiveFile:
    """A change file of this transaction. Its data sequence number is the same unless one is given."""
    path = f"4-I-{number}-00000-0-1-{number:05d}.parquet"
    return LiveFile(path, FileContent.DATA, 0, partition, 10, 1, number if sequence is None else sequence, added_snapshot_id=snapshot)


def decided(
    changes: Iterable[LiveFile],
    readers: Iterable[Mapping[Partition, int]],
    spans: Mapping[str, TransactionSpan] | None = None,
    **of: object,
) -> set[int]:
    """The data sequence numbers of the files that go."""
    numbers = [(number, of.get("at", NOW), sequences(each)) for number, each in enumerate(readers)]
    history = ChangeHistory(numbers, of.get("committed_at", {}), of.get("first_open"), sequences({}))  # type: ignore[arg-type]
    files = KeyedFiles((), tuple(changes), sequences({}), 1, spans or {})
    return {file.data_sequence_number for file in decide_merged_changes(files, history, WEEK, NOW).files}


def test_the_lowest_number_of_all_snapshots_counts() -> None:
    assert decided([change(n) for n in (3, 5, 7)], [{EU: 5}, {EU: 9}]) == {3, 5}


def test_a_partition_that_one_snapshot_does_not_know_keeps_everything() -> None:
    assert decided([change(3), change(4, partition=US)], [{US: 9}, {EU: 9, US: 9}]) == {4}


def test_nothing_goes_while_the_base_store_has_no_snapshot() -> None:
    assert decided([change(3)], []) == set()


def test_a_late_transaction_stays() -> None:
    """Its transaction was passed over, and its data sequence number was not: readers still apply it."""
    assert decided([change(3, 12)], [{EU: 9}]) == set()


def test_a_transaction_above_the_number_stays_whatever_the_data_sequence_number_says() -> None:
    assert decided([change(12, 3)], [{EU: 9}]) == set()


@pytest.mark.parametrize(("highest", "goes"), [(9, {9}), (10, set())])
def test_of_a_file_with_rows_of_several_transactions_the_highest_counts(highest: int, goes: set[int]) -> None:
    file = replace(change(0, 9), path="4-I-0-00000-0-1-00001.parquet")
    assert decided([file], [{EU: 9}], {file.path: TransactionSpan(1, highest)}) == goes


def test_a_file_stays_until_its_time_is_over_and_no_longer_than_its_snapshot() -> None:
    committed_at = {1: NOW - WEEK, 2: NOW - WEEK + timedelta(seconds=1)}
    files = [change(3, snapshot=1), change(4, snapshot=2), change(5, snapshot=3)]
    assert decided(files, [{EU: 9}], committed_at=committed_at) == {3, 5}


@pytest.mark.parametrize(("seconds", "goes"), [(0, {3, 4}), (-1, {3})])
def test_a_file_that_landed_after_the_snapshot_whose_number_covers_it_was_never_merged(seconds: int, goes: set[int]) -> None:
    """The change store was set back or made anew, and gives away numbers a second time."""
    landed = NOW - 2 * WEEK
    files = [change(3, snapshot=1), change(4, snapshot=2)]
    committed_at = {1: landed - timedelta(days=1), 2: landed}
    assert decided(files, [{EU: 9}], committed_at=committed_at, at=landed + timedelta(seconds=seconds)) == goes


@pytest.mark.parametrize(("first_open", "goes"), [(4, {3}), (3, set()), (None, {3, 4, 5})])
def test_what_landed_after_an_open_transaction_began_stays(first_open: int | None, goes: set[int]) -> None:
    """It may be an overwrite, which takes the number back to its own."""
    assert decided([change(n) for n in (3, 4, 5)], [{EU: 9}], first_open=first_open) == goes


def test_a_path_that_is_live_twice_stays() -> None:
    assert decided([change(3), change(3), change(4)], [{EU: 9}]) == {4}


def test_a_delete_file_of_iceberg_stays() -> None:
    foreign = replace(change(3), content=FileContent.POSITION_DELETES, path="other.parquet")
    assert decided([foreign, change(4)], [{EU: 9}]) == {4}


def test_partitions_that_share_a_path_stay() -> None:
    null, text = (PartitionValue("region", "string", None),), (PartitionValue("region", "string", "null"),)
    assert decided([change(3, partition=null)], [{null: 9}]) == {3}
    assert decided([change(3, partition=null), change(4, partition=text)], [{text: 9}]) == set()
    assert decided([change(4, partition=text)], [{text: 9}]) == set(), "Amoro takes the number for that of NULL"


def test_the_oldest_files_go_first_and_the_number_of_a_partition_never_falls() -> None:
    files = KeyedFiles((), (change(5), change(3), change(4, partition=US)), sequences({}), 1)
    history = ChangeHistory([(1, NOW, sequences({EU: 9, US: 9}))], {}, None, sequences({EU: 8}))
    found = decide_merged_changes(files, history, WEEK, NOW, most_files=2)
    assert [file.data_sequence_number for file in found.files] == [3, 4]
    assert (found.numbers, found.kept) == ({EU: 8, US: 4}, 1)


def test_the_reason_names_the_snapshot_that_needs_the_rest() -> None:
    files = KeyedFiles((), (change(5), change(3)), sequences({}), 1)
    found = decide_merged_changes(files, ChangeHistory([(77, NOW, sequences({EU: 4}))], {}, None, sequences({})), WEEK, NOW)
    assert "1 merged change file with 1 row (10 B)" in found.reason
    assert "snapshot 77 of the base store" in found.reason


@pytest.mark.parametrize("now", [{}, {EU: 4}, {US: 9}])
def test_a_base_store_below_what_has_left_is_refused(now: Mapping[Partition, int]) -> None:
    refuse_set_back("t", sequences({EU: 5}), sequences({EU: 5}))
    with pytest.raises(TableRefused, match=r"changes up to 5 of partition 'region=eu' were in its base store.*Take the base"):
        refuse_set_back("t", sequences(now), sequences({EU: 5}))
