"""Insert-overwrites as batches of sinks, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from compaction_pipeline.core.errors import CommitStateUnknown, ConfigError, RacesLost, TableRefused
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.keyed.base_commits import BaseCommits
from compaction_pipeline_tests.keyed.compacted import Compacted, expire
from compaction_pipeline_tests.keyed.overwrites import Overwritten, between, table_of
from compaction_pipeline_tests.keyed.written import BY_REGION, give_up_soon, row

NOON = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


@pytest.fixture
def keyed(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path)


@pytest.fixture
def regions(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path, key=("id", "region"), spec=BY_REGION)


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


def test_two_drivers_of_one_batch_land_it_once(keyed: Overwritten) -> None:
    def race(commit: Callable[[], None]) -> None:
        assert keyed.overwrite(row(1), sink_id="a", batch=1) == 2
        keyed.insert(row(2))
        commit()

    keyed.catalog.in_place_of_commits("t", race)
    assert keyed.overwrite(row(1), sink_id="a", batch=1) is None
    keyed.check([row(1), row(2)])
    assert keyed.stored() == 1


def test_a_batch_does_not_land_beside_another_driver_s_rows_of_other_partitions(regions: Overwritten) -> None:
    def race(commit: Callable[[], None]) -> None:
        assert regions.overwrite(row(1, "first", "us"), sink_id="a", batch=1) == 2
        commit()

    regions.catalog.in_place_of_commits("t", race)
    assert regions.overwrite(row(1, "second", "eu"), sink_id="a", batch=1) is None
    regions.check([row(1, "first", "us")])


@pytest.mark.parametrize("lands", [True, False])
def test_after_a_lost_answer_the_same_batch_lands_once(keyed: Overwritten, lands: bool) -> None:
    def lose(commit: Callable[[], None]) -> None:
        if lands:
            commit()
        raise ConnectionError("no answer")

    keyed.catalog.in_place_of_commits("t", lose)
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
def test_after_a_crash_the_same_batch_lands_once(keyed: Overwritten, lands: bool) -> None:
    keyed.insert(row(9, "old"))

    def crash(commit: Callable[[], None]) -> None:
        if lands:
            commit()
        raise KeyboardInterrupt

    keyed.catalog.in_place_of_commits("t", crash)
    with pytest.raises(KeyboardInterrupt):
        keyed.overwrite(row(1), sink_id="a", batch=1)
    keyed.check([row(1)] if lands else [row(9, "old")])
    assert (keyed.overwrite(row(1), sink_id="a", batch=1) is None) is lands
    keyed.check([row(1)])


def test_a_commit_that_landed_and_is_called_a_lost_race_is_not_made_again(keyed: Overwritten) -> None:
    def twice(commit: Callable[[], None]) -> None:
        commit()
        raise CommitFailedException("409")

    keyed.catalog.in_place_of_commits("t", twice)
    assert keyed.overwrite(row(1)) == 1
    assert len(keyed.stores()[0].metadata.snapshots) == 1
    keyed.check([row(1)])


def test_an_overwrite_that_always_loses_leaves_no_file(keyed: Overwritten, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.insert(row(1, "old"))

    def lose(commit: Callable[[], None]) -> None:
        raise CommitFailedException("another was faster")

    give_up_soon(monkeypatch)
    keyed.catalog.in_place_of_commits("t", lose, lose)
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
        (good.drop_columns(["id"]), "the rows have no column 'id'"),
        (good.drop_columns(["score"]), "the rows have no column 'score'"),
        (table_of([row(1, "a"), row(2), row(1, "b")]), "several rows have the key id=1, but in an upsert table"),
    ):
        with pytest.raises(ConfigError, match=message):
            keyed.table.insert_overwrite(rows)
    assert keyed.stores()[1].metadata.snapshots == []
    assert keyed.stored() == 0


def test_a_table_that_changes_while_rows_are_written_is_refused(keyed: Overwritten) -> None:
    def add_column() -> None:
        for store in keyed.stores():
            with store.update_schema() as schema:
                schema.add_column("x", StringType())

    between(keyed.catalog, add_column)
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
        KeyedTable.open(log.catalog, "db.t").insert_overwrite(table_of([row(1, "new")], log.base.schema()))


def test_a_base_store_that_lost_its_sequences_is_refused(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    log.insert({"id": 1, "region": None, "ts": None, "v": None})
    log.compactions.compact()
    log.lose_sequences()
    with pytest.raises(TableRefused, match=r"no snapshot of the base store says 'optimized-sequence\.exist'"):
        KeyedTable.open(log.catalog, "db.t").insert_overwrite(table_of([row(1, "new")], log.base.schema()))


def test_a_base_file_of_another_program_is_replaced_too(keyed: Overwritten, tmp_path: Path) -> None:
    base = keyed.stores()[0]
    base.append(pa.Table.from_pylist([{"id": 5}], schema=base.schema().as_arrow()))
    keyed.check([row(5)])
    keyed.overwrite(row(1))
    keyed.check([row(1)])
    row_delta(keyed.stores()[0], properties={"who": "another program"})
    keyed.check([row(1)])
