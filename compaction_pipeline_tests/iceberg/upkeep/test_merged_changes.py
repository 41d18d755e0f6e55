"""Merged change files leave real change stores: no reader sees another row, and a base store that was set back is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, get_args

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.keyed import sequences
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.rewrite_files import CommitStep
from compaction_pipeline_tests.iceberg.faulty_catalog import Faulty, silence_after
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.base_commits import BaseCommits
from compaction_pipeline_tests.keyed.change_logs import row
from compaction_pipeline_tests.keyed.compacted import expire
from compaction_pipeline_tests.keyed.compactions import Compactions
from compaction_pipeline_tests.keyed.delta_merges import rewrite
from compaction_pipeline_tests.keyed.example import Example
from compaction_pipeline_tests.keyed.expired_changes import expire_changes
from compaction_pipeline_tests.reference_reader import bag_difference
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, KEYED_EXAMPLES, catalog_properties

TABLE = TableIdentifier("lake", ("db",), "t")
BY_REGION = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))


class Expiring(BaseCommits):
    """A keyed table whose changes are merged, and expire as soon as they may."""

    def insert(self, *numbers: int, region: str | None = None) -> int:
        return self.commit(self.changes(1, "I", 0, [(row(number, region), place) for place, number in enumerate(numbers)]))

    def delete(self, number: int, region: str | None = None) -> int:
        return self.commit(self.changes(1, "ED", 0, [(row(number, region), 0)]))

    def merge(self, *partitions: str) -> None:
        tasks = self.plan(*partitions)
        assert not tasks or self.commit_tasks(*tasks, record=f"record-{self.number()}").committed

    def base_head(self) -> int:
        snapshot = self.base.refresh().current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id

    def expire_base(self) -> None:
        expire_all_but_refs(self.base)

    def expire_changes(self, now: datetime | None = None) -> int:
        """Let merged changes expire, those that were committed up to a week before this time. Returns how many files left."""
        return int(expire_changes(self.catalogs, TABLE, now).figures["change_files"])

    def marks(self) -> str | None:
        """What the change store says has left it."""
        return self.change.refresh().properties.get("compaction.expired-changes")

    def set_base_back(self, location: str) -> None:
        """Register older metadata of the base store, as somebody does who restores a catalog."""
        self.catalog.drop_table("db.t")
        self.base = self.catalog.register_table("db.t", location)


def expire_all_but_refs(store: Table) -> None:
    """Expire every snapshot but those that a ref names."""
    metadata = store.refresh().metadata
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in named:
            expire(store, snapshot.snapshot_id)


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Expiring]:
    return lambda **options: Expiring(tmp_path, **options)


@pytest.fixture
def keyed(make: Callable[..., Expiring]) -> Expiring:
    return make()


def test_inserts_and_deletes_leave_and_every_reader_finds_the_same_rows(keyed: Expiring) -> None:
    keyed.insert(1, 2, 3)
    keyed.delete(2)
    keyed.merge()
    keyed.insert(4)
    keyed.check([row(1), row(3), row(4)])
    before = keyed.change.refresh().current_snapshot()
    assert before is not None
    assert keyed.expire_changes() == 2
    keyed.check([row(1), row(3), row(4)])
    assert [file.record_count for file in keyed.change_files()] == [1]
    snapshot = keyed.change.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "delete"
    told = {key: snapshot.summary[key] for key in ("deleted-data-files", "deleted-records", "total-data-files", "total-records")}
    assert told == {"deleted-data-files": "2", "deleted-records": "4", "total-data-files": "1", "total-records": "1"}
    # The older snapshot still has its files: they leave storage when it expires.
    assert keyed.change.scan(snapshot_id=before.snapshot_id).to_arrow().num_rows == 5
    keyed.merge()
    keyed.check([row(1), row(3), row(4)])
    assert keyed.expire_changes() == 0, "the older snapshot of the base store does not have the last change"
    keyed.expire_base()
    assert keyed.expire_changes() == 1
    keyed.check([row(1), row(3), row(4)])
    assert keyed.marks() == '{"":3}'


def test_nothing_leaves_before_its_time(keyed: Expiring) -> None:
    keyed.insert(1)
    keyed.merge()
    with keyed.base.refresh().transaction() as transaction:
        transaction.set_properties({"change.data.ttl.minutes": "60"})
    now = datetime.now(timezone.utc)
    assert keyed.expire_changes(now + timedelta(minutes=59)) == 0
    assert keyed.expire_changes(now + timedelta(minutes=60)) == 1


@pytest.mark.parametrize("roll_back", [True, False])
def test_a_tag_on_an_old_snapshot_keeps_what_its_readers_need(keyed: Expiring, roll_back: bool) -> None:
    keyed.insert(1)
    keyed.merge()
    tagged = keyed.base_head()
    keyed.base.refresh().manage_snapshots().create_tag(tagged, "before").commit()
    keyed.delete(1)
    keyed.insert(2)
    keyed.merge()
    keyed.expire_base()
    assert keyed.expire_changes() == 1, "the first insert, which the tag has"
    keyed.check([row(2)])
    if roll_back:
        keyed.base.refresh().manage_snapshots().set_current_snapshot(snapshot_id=tagged).commit()
        keyed.check([row(2)])
        assert keyed.expire_changes() == 0
        keyed.merge()
        keyed.check([row(2)])
        return
    keyed.base.refresh().manage_snapshots().remove_tag("before").commit()
    keyed.expire_base()
    assert keyed.expire_changes() == 2


def test_a_partition_that_one_snapshot_lacks_keeps_its_files(make: Callable[..., Expiring]) -> None:
    keyed = make(spec=BY_REGION)
    keyed.insert(1, region="eu")
    keyed.insert(2, region="us")
    (eu, us) = sorted(str(task.work.node) for task in keyed.plan())
    keyed.merge(eu)
    keyed.merge(us)
    assert keyed.expire_changes() == 1
    assert [file.partition[0].value for file in keyed.change_files()] == ["us"]
    keyed.expire_base()
    assert keyed.expire_changes() == 1
    keyed.check([row(1, "eu"), row(2, "us")])
    assert keyed.marks() == '{"region=eu":1,"region=us":2}'


def test_a_file_that_replaced_others_goes_by_its_highest_transaction(keyed: Expiring) -> None:
    keyed.insert(1)
    keyed.merge()
    keyed.insert(2)
    rewrite(keyed, keyed.change_files())
    # The slow merge of these tests does not know that a row of the file is merged already.
    assert Compactions(keyed.catalog, keyed.properties).compact() is not None
    assert [file.data_sequence_number for file in keyed.change_files()] == [2]
    assert keyed.expire_changes() == 0, "the first snapshot of the base store has only the first of its rows"
    keyed.expire_base()
    assert keyed.expire_changes() == 1
    assert bag_difference(keyed.scanned(), [row(1), row(2)]) == ""


def test_a_transaction_that_lands_late_stays(keyed: Expiring) -> None:
    transaction = keyed.begin()
    keyed.insert(1)
    keyed.merge()
    keyed.commit(keyed.changes(1, "I", transaction, [(row(2), 0)]))
    assert keyed.expire_changes() == 1
    keyed.check([row(1), row(2)])
    assert keyed.expire_changes() == 0


def test_what_landed_after_an_open_transaction_began_waits_for_its_timeout(keyed: Expiring) -> None:
    with keyed.base.refresh().transaction() as properties:
        properties.set_properties({"change.data.ttl.minutes": "0"})
    keyed.insert(1)
    keyed.begin()
    keyed.insert(2)
    keyed.merge()
    now = datetime.now(timezone.utc)
    assert keyed.expire_changes(now + timedelta(minutes=59)) == 1
    assert keyed.expire_changes(now + timedelta(minutes=61)) == 1
    keyed.check([row(1), row(2)])


def test_a_change_of_the_partition_spec_refuses(make: Callable[..., Expiring]) -> None:
    keyed = make(spec=BY_REGION)
    keyed.insert(1, region="eu")
    keyed.merge()
    for store in (keyed.base, keyed.change):
        with store.refresh().update_spec() as update:
            update.remove_field("region")
    with pytest.raises(TableRefused, match="partition specs"):
        keyed.expire_changes()


@pytest.mark.parametrize("store", ["base", "change"])
@pytest.mark.parametrize(("key", "value"), [("gc.enabled", "false"), ("compaction.catalog-has-branches", "true")])
def test_a_store_of_which_nothing_may_expire_keeps_its_changes(keyed: Expiring, store: str, key: str, value: str) -> None:
    keyed.insert(1)
    keyed.merge()
    with getattr(keyed, store).refresh().transaction() as transaction:
        transaction.set_properties({key: value})
    with pytest.raises(TableRefused, match=f"'{key}' is {value}"):
        keyed.expire_changes()


def test_a_base_store_that_was_set_back_is_neither_read_nor_planned_nor_written_to(keyed: Expiring) -> None:
    keyed.insert(1)
    keyed.merge()
    old = keyed.base.refresh().metadata_location
    keyed.insert(2)
    keyed.merge()
    keyed.expire_base()
    assert keyed.expire_changes() == 2
    newest = keyed.base.refresh().metadata_location
    keyed.set_base_back(old)
    assert bag_difference(keyed.judged(), [row(1)]) == "", "Amoro's reader silently misses row 2"
    stores = load_stores(keyed.catalog, ("db", "t"))
    for act in (keyed.scanned, keyed.expire_changes, stores.sequences):
        with pytest.raises(TableRefused, match=r"changes up to 2 of partition '' were in its base store.*up to 1 only"):
            act()
    keyed.set_base_back(newest)
    keyed.check([row(1), row(2)])


def test_an_overwrite_of_another_program_that_ends_after_its_timeout_is_refused(keyed: Expiring) -> None:
    """It takes the number of its partition back to its own transaction, and readers would need changes that have left."""
    keyed.insert(1)
    transaction = keyed.begin()
    keyed.insert(2)
    keyed.merge()
    keyed.expire_base()
    assert keyed.expire_changes() == 2
    keyed.replace_base([keyed.base_rows(1, transaction, [row(9)])], keyed.base_files(), {"": transaction})
    assert bag_difference(keyed.judged(), [row(9)]) == "", "Amoro's reader silently misses row 2"
    with pytest.raises(TableRefused, match=r"changes up to 3 of partition '' were in its base store.*up to 2 only"):
        keyed.scanned()


def test_after_a_rollback_of_the_change_store_the_mark_does_not_fall(keyed: Expiring) -> None:
    keyed.insert(1)
    first = keyed.change.refresh().current_snapshot()
    assert first is not None
    keyed.insert(2)
    keyed.merge()
    assert (keyed.expire_changes(), keyed.marks()) == (2, '{"":2}')
    keyed.roll_back_changes(first.snapshot_id)
    keyed.check([row(1), row(2)])
    assert (keyed.expire_changes(), keyed.marks()) == (1, '{"":2}')
    keyed.check([row(1), row(2)])


def test_a_partition_is_the_same_whoever_writes_its_path(make: Callable[..., Expiring]) -> None:
    keyed = make(spec=BY_REGION)
    keyed.insert(1, region="l'été")
    keyed.merge()
    assert keyed.expire_changes() == 1
    assert keyed.marks() == '{"region=l%27%C3%A9t%C3%A9":1}'
    keyed.commit_base(sequences={"region=l'été": 1})
    keyed.check([row(1, "l'été")])
    keyed.commit_base(sequences={"region=l'été": 0})
    with pytest.raises(TableRefused, match="changes up to 1 of partition"):
        keyed.scanned()


def test_each_number_of_the_base_store_is_read_once_and_no_more_than_is_needed(keyed: Expiring, monkeypatch: pytest.MonkeyPatch) -> None:
    keyed.append_base(0, [row(0)])
    for number in range(1, 19):
        keyed.commit_base(sequences={"": number})
        # It has its numbers from the snapshot before.
        keyed.commit_base()
    read: list[str] = []
    real = sequences.blobs_in
    monkeypatch.setattr(sequences, "blobs_in", lambda io, path, kind: (read.append(path), real(io, path, kind))[1])
    metadata = keyed.base.refresh().metadata
    found = [each.of(()) for _, each in sequences.read_all_sequences("t", metadata, keyed.base.io)]
    assert found == [None, *range(1, 19)]
    assert len(read) == 18
    read.clear()
    next(sequences.read_all_sequences("t", metadata, keyed.base.io))
    assert len(read) <= 16


def test_a_reader_loads_the_change_store_first(keyed: Expiring) -> None:
    """While a reader loads the stores, changes are merged, the base store's older snapshots expire, and the changes leave."""
    keyed.insert(1)
    keyed.merge()
    keyed.insert(2)
    base_of_before = keyed.base.refresh().metadata_location
    loads = 0

    def before_load() -> None:
        nonlocal loads
        loads += 1
        if loads == 3:
            # The reader has loaded the change store, and loads the base store next.
            keyed.catalog.before_load = None
            keyed.merge()
            keyed.expire_base()
            assert keyed.expire_changes() == 2

    keyed.catalog.before_load = before_load
    stores = load_stores(keyed.catalog, ("db", "t"))
    assert keyed.catalog.before_load is None, "the reader has loaded the base store last"
    assert bag_difference(amoro_rows(stores.base.metadata_location, stores.change.metadata_location), [row(1), row(2)]) == ""
    keyed.check([row(1), row(2)])
    in_the_other_order = amoro_rows(base_of_before, keyed.change.refresh().metadata_location)
    assert bag_difference(in_the_other_order, [row(1)]) == "", "row 2 is in neither store"


# ---- beside others, and with lost answers ----------------------------------------------------------------------------


def filled(keyed: Expiring) -> None:
    """Rows 1 and 2 are merged and can leave. Row 3 is not merged."""
    keyed.insert(1, 2, 9)
    keyed.delete(9)
    keyed.merge()
    keyed.insert(3)


@pytest.mark.parametrize("step", ["before-load", "after-load", "after-validation", "before-swap"])
@pytest.mark.parametrize("act", ["write", "merge", "expire_base", "expire_changes", "merge_and_expire"])
def test_whatever_others_do_meanwhile_no_row_is_lost_and_none_comes_back(keyed: Expiring, step: str, act: str) -> None:
    filled(keyed)
    acted: list[str] = []
    more = [row(4)] if act == "write" else []
    acts: dict[str, Callable[[], object]] = {
        "write": lambda: keyed.insert(4),
        "merge": keyed.merge,
        "expire_base": keyed.expire_base,
        "expire_changes": keyed.expire_changes,
        "merge_and_expire": lambda: (keyed.merge(), keyed.expire_base(), keyed.expire_changes()),
    }

    def other(now: str) -> None:
        if now == step and not acted:
            acted.append(now)
            acts[act]()

    expire_changes(keyed.catalogs, TABLE, on_step=other)
    assert acted
    keyed.check([row(1), row(2), row(3), *more])
    assert len(keyed.change_files()) <= 1 + len(more), "what was merged before has left"
    keyed.merge()
    keyed.expire_base()
    keyed.expire_changes()
    assert keyed.change_files() == []
    keyed.check([row(1), row(2), row(3), *more])


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("step", get_args(CommitStep))
def test_a_process_that_dies_at_any_step_leaves_a_table_that_goes_on(keyed: Expiring, step: str) -> None:
    filled(keyed)

    def die(now: str) -> None:
        if now == step:
            raise Killed

    with pytest.raises(Killed):
        expire_changes(keyed.catalogs, TABLE, on_step=die)
    left, marks = (1, '{"":2}') if step == "after-swap" else (3, None)
    assert (len(keyed.change_files()), keyed.marks()) == (left, marks)
    keyed.check([row(1), row(2), row(3)])
    assert keyed.expire_changes() == left - 1
    assert (len(keyed.change_files()), keyed.marks()) == (1, '{"":2}')
    keyed.check([row(1), row(2), row(3)])


def test_a_lost_answer_is_found_in_the_table(keyed: Expiring) -> None:
    filled(keyed)
    Faulty(keyed.catalogs.catalog("lake"), silence_after)
    outcome = expire_changes(keyed.catalogs, TABLE)
    assert (outcome.state, outcome.unanswered, outcome.figures["change_files"]) == (CommitState.COMMITTED, True, 2)
    keyed.check([row(1), row(2), row(3)])


@pytest.mark.parametrize("meanwhile", ["nothing", "expire_base", "roll_back", "write"])
def test_a_request_without_an_answer_that_lands_later_does_no_harm(keyed: Expiring, meanwhile: str) -> None:
    filled(keyed)
    merged = keyed.base_head()
    keyed.delete(1)
    keyed.merge()
    late: list[Callable[[], Any]] = []

    def swallowed(swap: Callable[[], Any]) -> None:
        late.append(swap)
        raise CommitStateUnknownException("gateway timeout")

    Faulty(keyed.catalogs.catalog("lake"), swallowed)
    outcome = expire_changes(keyed.catalogs, TABLE)
    assert outcome.state is CommitState.UNKNOWN
    assert len(keyed.change_files()) == 4
    if meanwhile == "expire_base":
        keyed.expire_base()
    elif meanwhile == "roll_back":
        keyed.base.refresh().manage_snapshots().set_current_snapshot(snapshot_id=merged).commit()
    elif meanwhile == "write":
        keyed.insert(5)
        with pytest.raises(CommitFailedException):
            late[0]()
        keyed.check([row(2), row(3), row(5)])
        return
    late[0]()
    assert len(keyed.change_files()) == 2
    keyed.check([row(2), row(3)])


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_tables_that_amoro_wrote_show_the_same_rows_to_both_readers(name: str, tmp_path: Path) -> None:
    example = Example(name, tmp_path)
    properties = catalog_properties(example.home)
    Compactions(example.catalog, properties).compact(CompactionType.FULL)
    base, change = (example.catalog.load_table(f"db.{store}") for store in ("t", "t_change_"))
    expire_all_but_refs(base)
    catalogs = Catalogs(lambda catalog: CatalogEntry(catalog, properties))
    gone = expire_changes(catalogs, TableIdentifier(CATALOG_NAME, ("db",), "t"))
    assert gone.state is CommitState.COMMITTED
    assert gone.figures["change_files_kept"] == 0
    assert bag_difference(example.table.scan().to_arrow().to_pylist(), example.expected) == ""
    assert bag_difference(amoro_rows(base.refresh().metadata_location, change.refresh().metadata_location), example.expected) == ""
