"""Insert-overwrites: partitions of the base store are replaced, whatever else writes to both stores meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import CommitStateUnknown, ConfigError, RacesLost, TableRefused
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.keyed.file_names import base_file
from compaction_pipeline.core.tables.keyed.key_hash import key_hash
from compaction_pipeline.core.tables.keyed.tree import DataTreeNode
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.keyed import overwrite as overwriting
from compaction_pipeline_tests.interop.amoro_reader import optimized_sequences
from compaction_pipeline_tests.keyed.base_commits import BaseCommits
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.test_late_and_lost import Compacted, expire
from compaction_pipeline_tests.keyed.test_writing import BY_REGION, Keyed, row
from compaction_pipeline_tests.reference_reader import Row, bag_difference, live_entries, metadata_of, reference_rows

NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


class Overwritten(Keyed):
    """A keyed table that is overwritten and compacted."""

    def __init__(self, folder: Path, key: Sequence[str] = ("id",), spec: PartitionSpec = PartitionSpec(), **options: Any) -> None:
        super().__init__(folder, key, spec, **options)
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
        self.compactions = Compactions(self.catalog, properties)

    def overwrite(self, *rows: Row, **options: Any) -> int | None:
        return self.table.insert_overwrite(table_of(rows), **options)

    def insert(self, *rows: Row, **options: Any) -> int | None:
        return self.write(*(("INSERT", each) for each in rows), **options)

    def sequences(self) -> dict[tuple[Any, ...], int]:
        """The optimized sequences as Amoro's rules read them."""
        found = optimized_sequences(metadata_of(self.stores()[0].metadata_location))
        return {tuple(value for _, value in partition): number for partition, number in found.items()}

    def base_paths(self) -> list[str]:
        return sorted(entry.path for entry in live_entries(metadata_of(self.stores()[0])))

    def stored(self) -> int:
        """How many data files the base store has on storage."""
        return len(list(Path(self.stores()[0].location().removeprefix("file://")).glob("data/**/*.parquet")))


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=pa.schema([("id", pa.int64()), ("region", pa.string()), ("v", pa.string())]))


@pytest.fixture
def keyed(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path)


@pytest.fixture
def regions(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path, key=("id", "region"), spec=BY_REGION)


def between(monkeypatch: pytest.MonkeyPatch, *acts: Callable[[], Any]) -> None:
    """Let others act after the rows of an overwrite are written and before its commit: the first of them in the first overwrite."""
    real, left = overwriting.write_files, list(acts)

    def write_files(*arguments: Any) -> Any:
        written = real(*arguments)
        if left:
            left.pop(0)()
        return written

    monkeypatch.setattr(overwriting, "write_files", write_files)


def at_base_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[Callable[[], None]], None], times: int = 1) -> None:
    """Act in place of the first commits to the base store. `act` gets the real commit."""
    real, done = Transaction.commit, []

    def commit(self: Transaction) -> None:
        if self._table.name()[-1] != "t" or len(done) == times:
            real(self)
            return
        done.append(1)
        act(lambda: real(self))

    monkeypatch.setattr(Transaction, "commit", commit)


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
    KeyedTable.open(log.catalog, "db.t").insert_overwrite(table_of([row(1, "new")]))
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


def test_changes_that_land_while_rows_are_written_apply_to_them(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.insert(row(1, "old"))
    between(monkeypatch, lambda: keyed.write(("DELETE", row(1)), ("DELETE", row(2)), ("INSERT", row(3, "later"))))
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


def test_a_merge_while_rows_are_written_stays_below_the_transaction(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.insert(row(1, "old"))

    def change_and_compact() -> None:
        keyed.insert(row(2, "later"))
        assert keyed.compactions.compact() is not None
        assert keyed.sequences() == {(): 1}

    between(monkeypatch, change_and_compact)
    assert keyed.overwrite(row(1, "new")) == 2
    assert keyed.sequences() == {(): 2}
    keyed.check([row(1, "new"), row(2, "later")])


def test_an_overwrite_that_took_too_long_begins_again(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.insert(row(1, "old"))
    with keyed.stores()[0].transaction() as base:
        base.set_properties({"compaction.transaction.timeout": "1"})

    def change_and_compact() -> None:
        keyed.insert(row(2, "before"))
        assert keyed.compactions.compact() is not None
        assert keyed.sequences() == {(): 3}
        merged.extend(keyed.base_paths())

    merged: list[str] = []
    between(monkeypatch, change_and_compact)
    assert keyed.overwrite(row(1, "new")) == 4
    keyed.check([row(1, "new")])
    assert keyed.stored() == len(merged) + 1, "the file of the first try is gone; older snapshots still have those of the merge"


def test_an_overwrite_that_is_always_passed_gives_up_and_leaves_no_file(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each of the others is written during one try, and nothing happens while its own rows are written.
    between(monkeypatch, *[lambda: keyed.overwrite(row(7, "other")), lambda: None] * overwriting._BEGINNINGS)
    with pytest.raises(RacesLost, match=r"changes up to \d+ went into the base store, and the overwrite is transaction"):
        keyed.overwrite(row(1, "new"))
    keyed.check([row(7, "other")])
    assert keyed.stored() == overwriting._BEGINNINGS


@pytest.mark.parametrize("when", ["after the rows are written", "before the swap"])
def test_of_two_overwrites_at_once_the_one_that_is_committed_last_counts(
    keyed: Overwritten, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    keyed.insert(row(1, "old"))

    def other() -> None:
        keyed.overwrite(row(2, "other"))
        keyed.check([row(2, "other")])

    if when == "before the swap":

        def race(commit: Callable[[], None]) -> None:
            other()
            commit()

        at_base_commit(monkeypatch, race)
    else:
        between(monkeypatch, other)
    # The other one is transaction 3, so this one begins again.
    assert keyed.overwrite(row(1, "new")) == 4
    keyed.check([row(1, "new")])


def test_an_earlier_overwrite_that_is_committed_later_replaces_nothing_of_other_partitions(
    regions: Overwritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    def race(commit: Callable[[], None]) -> None:
        regions.overwrite(row(1, "other", "us"))
        commit()

    at_base_commit(monkeypatch, race)
    assert regions.overwrite(row(1, "new", "eu")) == 1
    regions.check([row(1, "new", "eu"), row(1, "other", "us")])
    assert regions.sequences() == {("eu",): 1, ("us",): 2}


def test_a_lost_race_is_tried_on_the_new_head(regions: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    regions.insert(row(1, "a", "eu"), row(1, "a", "us"))

    def race(commit: Callable[[], None]) -> None:
        assert regions.compactions.compact() is not None
        commit()

    at_base_commit(monkeypatch, race)
    assert regions.overwrite(row(2, "new", "eu")) == 2
    regions.check([row(2, "new", "eu"), row(1, "a", "us")])
    assert regions.sequences() == {("eu",): 2, ("us",): 1}
    assert len(list(Path(regions.stores()[0].location().removeprefix("file://")).glob("data/puffin/*"))) == 2


# ---- batches


def test_a_batch_of_rows_lands_once_whatever_kind_its_batches_are(keyed: Overwritten) -> None:
    assert keyed.insert(row(1), sink_id="a", batch=0) == 1
    assert keyed.overwrite(row(2), sink_id="a", batch=1) == 2
    assert keyed.insert(row(3), sink_id="a", batch=2) == 3
    for number in (0, 1, 2):
        assert keyed.overwrite(row(7), sink_id="a", batch=number) is None
        assert keyed.insert(row(7), sink_id="a", batch=number) is None
    keyed.check([row(2), row(3)])
    assert keyed.overwrite(row(4), sink_id="a", batch=3) == 4
    assert keyed.insert(row(7), sink_id="a", batch=3) is None, "the mark is in the base store"
    keyed.check([row(4)])


def test_a_batch_lands_once_after_all_snapshots_before_are_expired(keyed: Overwritten) -> None:
    keyed.overwrite(row(1), sink_id="a", batch=1)
    snapshot = keyed.stores()[0].current_snapshot()
    assert snapshot is not None
    keyed.overwrite(row(2))
    expire(keyed.stores()[0], snapshot.snapshot_id)
    assert keyed.overwrite(row(1), sink_id="a", batch=1) is None
    keyed.check([row(2)])


def test_two_drivers_of_one_batch_land_it_once(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    def race(commit: Callable[[], None]) -> None:
        assert keyed.overwrite(row(1), sink_id="a", batch=1) == 2
        keyed.insert(row(2))
        commit()

    at_base_commit(monkeypatch, race)
    assert keyed.overwrite(row(1), sink_id="a", batch=1) is None
    keyed.check([row(1), row(2)])
    assert keyed.stored() == 1


def test_a_batch_does_not_land_beside_another_driver_s_rows_of_other_partitions(
    regions: Overwritten, monkeypatch: pytest.MonkeyPatch
) -> None:
    def race(commit: Callable[[], None]) -> None:
        assert regions.overwrite(row(1, "first", "us"), sink_id="a", batch=1) == 2
        commit()

    at_base_commit(monkeypatch, race)
    assert regions.overwrite(row(1, "second", "eu"), sink_id="a", batch=1) is None
    regions.check([row(1, "first", "us")])


@pytest.mark.parametrize("lands", [True, False])
def test_after_a_lost_answer_the_same_batch_lands_once(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    def lose(commit: Callable[[], None]) -> None:
        if lands:
            commit()
        raise ConnectionError("no answer")

    at_base_commit(monkeypatch, lose)
    if lands:
        assert keyed.overwrite(row(1), sink_id="a", batch=1) == 1
    else:
        with pytest.raises(CommitStateUnknown, match="it may still land"):
            keyed.overwrite(row(1), sink_id="a", batch=1)
        assert keyed.stored() == 1, "the file may be live"
    keyed.insert(row(2))
    assert (keyed.overwrite(row(1), sink_id="a", batch=1) is None) is lands
    keyed.check([row(1), row(2)] if lands else [row(1)])


@pytest.mark.parametrize("lands", [True, False])
def test_after_a_crash_the_same_batch_lands_once(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch, lands: bool) -> None:
    keyed.insert(row(9, "old"))

    def crash(commit: Callable[[], None]) -> None:
        if lands:
            commit()
        raise KeyboardInterrupt

    at_base_commit(monkeypatch, crash)
    with pytest.raises(KeyboardInterrupt):
        keyed.overwrite(row(1), sink_id="a", batch=1)
    keyed.check([row(1)] if lands else [row(9, "old")])
    assert (keyed.overwrite(row(1), sink_id="a", batch=1) is None) is lands
    keyed.check([row(1)])


def test_a_commit_that_landed_and_is_called_a_lost_race_is_not_made_again(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(commit: Callable[[], None]) -> None:
        commit()
        raise CommitFailedException("409")

    at_base_commit(monkeypatch, twice)
    assert keyed.overwrite(row(1)) == 1
    assert len(keyed.stores()[0].metadata.snapshots) == 1
    keyed.check([row(1)])


def test_an_overwrite_that_always_loses_leaves_no_file(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.insert(row(1, "old"))

    def lose(commit: Callable[[], None]) -> None:
        raise CommitFailedException("another was faster")

    monkeypatch.setattr("compaction_pipeline.iceberg.keyed.write_commits._ATTEMPTS", 2)
    at_base_commit(monkeypatch, lose, times=2)
    with pytest.raises(RacesLost, match="nothing was written, write it again"):
        keyed.overwrite(row(1, "new"), sink_id="a", batch=1)
    assert keyed.stored() == 0
    assert not list(Path(keyed.stores()[0].location().removeprefix("file://")).glob("data/puffin/*"))
    keyed.check([row(1, "old")])
    assert keyed.overwrite(row(1, "new"), sink_id="a", batch=1) == 3
    keyed.check([row(1, "new")])


def test_watermarks_of_both_stores_count_together_and_a_reset_forgets_both(keyed: Overwritten) -> None:
    keyed.insert(row(1), sink_id="a", batch=0, watermark=NOON)
    keyed.overwrite(row(2), sink_id="b", batch=0)
    assert keyed.table.watermark() is None, "sink b has promised nothing"
    keyed.overwrite(row(3), sink_id="b", batch=1, watermark=NOON - timedelta(hours=1))
    assert keyed.table.watermark() == NOON - timedelta(hours=1)
    keyed.overwrite(row(3), sink_id="a", batch=1, watermark=NOON - timedelta(hours=2))
    assert keyed.table.watermark() == NOON - timedelta(hours=1), "that of sink a did not go back"
    keyed.insert(row(4), sink_id="a", batch=2)
    for store in keyed.stores():
        snapshot = store.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary["watermark"] == str(int((NOON - timedelta(hours=1)).timestamp() * 1000))
    keyed.table.reset_sink("a")
    assert not [key for store in keyed.stores() for key in store.properties if key.startswith("compaction.sink.a.")]
    assert keyed.overwrite(row(5), sink_id="a", batch=0) is not None
    keyed.check([row(5)])


# ---- refused


def test_rows_that_do_not_fit_begin_no_transaction(tmp_path: Path) -> None:
    keyed = Overwritten(tmp_path, upsert=True)
    good = table_of([row(1)])
    for rows, message in (
        (good.append_column("_change_type", pa.array(["INSERT"])), "a column '_change_type', but the table's columns are id"),
        (good.drop_columns(["id"]), "column 'id' is required"),
        (table_of([row(1, "a"), row(2), row(1, "b")]), "several rows have the key id=1, but in an upsert table"),
    ):
        with pytest.raises(ConfigError, match=message):
            keyed.table.insert_overwrite(rows)
    assert keyed.stores()[1].metadata.snapshots == []
    assert keyed.stored() == 0


def test_a_table_that_changes_while_rows_are_written_is_refused(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_column() -> None:
        for store in keyed.stores():
            with store.update_schema() as schema:
                schema.add_column("x", StringType())

    between(monkeypatch, add_column)
    with pytest.raises(TableRefused, match="got other columns, partitions or keys"):
        keyed.overwrite(row(1))
    assert keyed.stored() == 0


def test_a_table_with_several_partition_specs_is_refused(keyed: Overwritten) -> None:
    keyed.insert(row(1))
    for store in keyed.stores():
        with store.update_spec() as spec:
            spec.add_field("region", IdentityTransform(), "region")
    with pytest.raises(TableRefused, match="has the partition specs 0, 1"):
        keyed.overwrite(row(1, "new", "eu"))
    assert keyed.stored() == 0


@pytest.mark.parametrize("where", ["changes", "the rows"])
def test_one_number_does_not_stand_for_two_partitions(regions: Overwritten, where: str) -> None:
    rows = [row(1, "new", None)]
    if where == "changes":
        regions.insert(row(2, "a", "null"))
    else:
        rows.append(row(2, "new", "null"))
    with pytest.raises(TableRefused, match="'region=null' is the path of two partitions"):
        regions.overwrite(*rows)
    regions.check([row(2, "a", "null")] if where == "changes" else [])


def test_a_file_that_is_live_twice_is_not_left_behind(tmp_path: Path) -> None:
    log = BaseCommits(tmp_path)
    file = log.base_rows(1, 0, [{"id": 1, "region": None, "ts": None, "v": None}], name="other-1")
    transaction = Transaction(log.base.refresh())
    struct = log.base.spec().partition_type(log.base.schema())
    transaction.stage(SnapshotChange(Operation.APPEND, [AddedFile(data_file_of(file, struct))] * 2))
    transaction.commit()
    with pytest.raises(TableRefused, match="is live more than once in the base store"):
        KeyedTable.open(log.catalog, "db.t").insert_overwrite(table_of([row(1, "new")]))


def test_a_base_store_that_lost_its_sequences_is_refused(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.insert({"id": 1, "region": None, "ts": None, "v": None})
    log.compactions.compact()
    log.lose_sequences()
    with pytest.raises(TableRefused, match=r"no snapshot of the base store says 'optimized-sequence\.exist'"):
        KeyedTable.open(log.catalog, "db.t").insert_overwrite(table_of([row(1, "new")]))


def test_a_base_file_of_another_program_is_replaced_too(keyed: Overwritten, tmp_path: Path) -> None:
    base = keyed.stores()[0]
    base.append(pa.Table.from_pylist([{"id": 5}], schema=base.schema().as_arrow()))
    keyed.check([row(5)])
    keyed.overwrite(row(1))
    keyed.check([row(1)])
    row_delta(keyed.stores()[0], properties={"who": "another program"})
    keyed.check([row(1)])
