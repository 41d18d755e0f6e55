"""Old rows of keyed tables: whole partitions leave both stores at once, and none of their rows comes back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter
from compaction_pipeline.iceberg.upkeep.old_rows import DropOldRows, PlannedRows
from compaction_pipeline_tests.keyed.overwrites import Overwritten
from compaction_pipeline_tests.keyed.written import BY_REGION
from compaction_pipeline_tests.reference_reader import Row

NOW = datetime.now(timezone.utc)
RULES = {"data-expire.field": "day", "data-expire.retention-time": "10d"}
BY_DAY = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "day"))
OLD, OLDER, YOUNG = ((NOW - timedelta(days=days)).date() for days in (20, 30, 2))


class Aging(Overwritten):
    """A keyed table whose old rows are dropped."""

    def __init__(self, folder: Path, spec: PartitionSpec = BY_DAY, key: tuple[str, ...] = ("id", "day"), **options: Any) -> None:
        super().__init__(folder, key, spec, **options)
        with self.stores()[0].transaction() as transaction:
            transaction.set_properties(RULES)
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
        self.catalogs = Catalogs(lambda name: CatalogEntry(name, properties))

    def drop(self, act: Callable[[], object] = lambda: None, later: timedelta = timedelta()) -> PlannedRows:
        """Drop old rows. `act` happens between the plan and the commit of the first attempt. Returns the first plan."""
        acts, now = iter([act]), datetime.now(timezone.utc) + later

        def on_step(step: str) -> None:
            if step == "before-manifest-list":
                next(acts, lambda: None)()

        committer = IcebergUpkeepCommitter(self.catalogs, lambda: now, on_step=on_step, sleep=lambda seconds: None)
        (target,) = committer.targets(TableIdentifier("lake", ("db",), "t"), UpkeepWork.OLD_ROWS)
        loaded = self.catalogs.load(target.store)
        plan = DropOldRows(self.catalogs, target, {}, lambda: now).plan(loaded, HeadReader(loaded.io))
        assert committer.look(target, {}) == plan.said
        outcome = committer.commit(target, RecordId(f"drop-{uuid4().hex}"), {})
        assert outcome.state is (CommitState.COMMITTED if plan.rows.is_due else CommitState.NOTHING)
        return plan


@pytest.fixture
def aging(tmp_path: Path) -> Aging:
    return Aging(tmp_path)


def row(number: int, day: date | None, v: str = "v") -> Row:
    return {"id": number, "day": day, "v": v}


def test_rows_of_old_partitions_leave_both_stores_in_one_commit(aging: Aging) -> None:
    aging.insert(row(1, OLD), row(2, OLD), row(3, YOUNG), row(4, OLDER))
    aging.compactions.compact()
    # In the change store there are now a delete and an update of merged rows, and new rows, one of a partition without base files.
    only_changes = OLD - timedelta(days=1)
    aging.write(("DELETE", row(1, OLD)), ("INSERT", row(5, OLD)), ("INSERT", row(6, only_changes)), ("INSERT", row(7, YOUNG)))
    snapshots = [len(store.snapshots()) for store in aging.stores()]
    plan = aging.drop()
    aging.check([row(3, YOUNG), row(7, YOUNG)])
    assert [len(store.snapshots()) for store in aging.stores()] == [snapshots[0] + 1, snapshots[1]]
    assert aging.sequences() == {(OLD,): 2, (OLDER,): 1, (YOUNG,): 1, (only_changes,): 2}
    assert (plan.rows.figures["partitions"], plan.rows.figures["rows"]) == (3, 5)
    assert not aging.drop().rows.is_due
    assert aging.compactions.compact(CompactionType.FULL) is not None
    aging.check([row(3, YOUNG), row(7, YOUNG)])


def test_a_partition_stays_while_a_change_in_it_may_be_young(tmp_path: Path) -> None:
    regions = Aging(tmp_path, BY_REGION, ("id", "region"))
    regions.insert({**row(1, OLD), "region": "eu"}, {**row(1, OLD), "region": "us"}, {**row(1, None), "region": "de"})
    regions.compactions.compact()
    regions.insert({**row(2, YOUNG), "region": "eu"})
    assert [str(place).partition(" (")[0] for place in regions.drop().rows.places] == ["region=us"]
    regions.check([{**row(1, OLD), "region": "eu"}, {**row(2, YOUNG), "region": "eu"}, {**row(1, None), "region": "de"}])


def test_changes_that_land_during_the_drop_stay(aging: Aging) -> None:
    aging.insert(row(1, OLD), row(2, OLD))
    aging.compactions.compact()
    aging.insert(row(3, OLD))
    late = row(4, OLD)
    aging.drop(lambda: aging.write(("DELETE", row(1, OLD)), ("INSERT", late)))
    aging.check([late])
    aging.compactions.compact()
    aging.check([late])


def test_a_merge_that_read_the_rows_before_does_not_bring_them_back(aging: Aging) -> None:
    aging.insert(row(1, OLD), row(2, YOUNG))
    merged = aging.compactions.merge(aging.compactions.plan())
    aging.drop()
    outcome = aging.compactions.commit(merged)
    assert outcome.state is CommitState.COMMITTED
    assert len(outcome.conflicts) == 1
    aging.check([row(2, YOUNG)])


def test_nothing_goes_while_a_transaction_has_begun(aging: Aging) -> None:
    """Its insert could land below a delete that is skipped by then."""
    aging.insert(row(1, OLD))
    row_delta(aging.stores()[1], properties={"tx.begin.signature": "test"})
    plan = aging.drop()
    assert not plan.rows.is_due
    assert "transaction 2 began" in plan.rows.reason
    assert plan.next_look is not None
    assert timedelta(minutes=50) < plan.next_look - datetime.now(timezone.utc) < timedelta(minutes=70)
    assert aging.drop(later=timedelta(hours=2)).rows.is_due


def test_partitions_of_one_path_stay(tmp_path: Path) -> None:
    regions = Aging(tmp_path, BY_REGION, ("id", "region"))
    regions.insert(*({**row(1, OLD), "region": region} for region in (None, "null", "eu")))
    assert [str(place).partition(" (")[0] for place in regions.drop().rows.places] == ["region=eu"]


@pytest.mark.parametrize("text", ["null", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("act", ["drop", "merge", "overwrite"])
def test_no_number_stands_under_a_text_that_other_readers_take_for_null(tmp_path: Path, act: str, text: str) -> None:
    """Amoro would not find the number, and would read the changes for ever: dropped rows again, and merged rows twice."""
    regions = Aging(tmp_path, BY_REGION, ("id", "region"))
    old = {**row(1, OLD), "region": text}
    regions.insert(old)
    if act == "drop":
        assert not regions.drop().rows.is_due
    elif act == "merge":
        regions.compactions.compact()
    else:
        with pytest.raises(TableRefused, match="is the path of two partitions, NULL and a text"):
            regions.overwrite(old)
    assert regions.sequences() == {}
    regions.check([old])


def test_a_table_whose_changes_cannot_be_told_apart_is_refused(aging: Aging) -> None:
    aging.insert(row(1, OLD))
    aging.compactions.compact()
    paths = aging.base_paths()
    for store in aging.stores():
        with store.update_spec() as spec:
            spec.add_field("v", IdentityTransform(), "v")
    with pytest.raises(TableRefused, match="has the partition specs 0, 1"):
        aging.drop()
    assert aging.base_paths() == paths


def test_the_head_that_was_loaded_is_judged_and_not_a_newer_one(aging: Aging) -> None:
    aging.insert(row(1, OLD))
    aging.compactions.compact()
    committer = IcebergUpkeepCommitter(aging.catalogs, lambda: datetime.now(timezone.utc))
    (target,) = committer.targets(TableIdentifier("lake", ("db",), "t"), UpkeepWork.OLD_ROWS)
    loaded, paths = aging.catalogs.load(target.store), aging.base_paths()
    aging.insert(row(2, OLD))
    aging.compactions.compact(CompactionType.FULL)
    assert aging.base_paths() != paths
    plan = DropOldRows(aging.catalogs, target, {}, lambda: datetime.now(timezone.utc)).plan(loaded, HeadReader(loaded.io))
    assert [file.path for file in plan.rows.removed] == paths


def test_all_of_a_table_without_partitions_goes_when_all_of_it_is_old(tmp_path: Path) -> None:
    whole = Aging(tmp_path, PartitionSpec(), ("id",))
    whole.insert(row(1, OLD), row(2, OLD))
    whole.compactions.compact()
    whole.write(("UPDATE_BEFORE", row(1, OLD)), ("UPDATE_AFTER", row(1, OLDER, "new")))
    whole.drop()
    whole.check([])
    whole.insert(row(1, YOUNG))
    whole.check([row(1, YOUNG)])


def test_merged_change_files_of_a_young_time_hold_nothing_back(tmp_path: Path) -> None:
    regions = Aging(tmp_path, BY_REGION, ("id", "region"))
    before, after = ({**row(1, day), "region": "eu"} for day in (YOUNG, OLD))
    regions.insert(before)
    regions.compactions.compact()
    regions.write(("UPDATE_BEFORE", before), ("UPDATE_AFTER", after))
    assert not regions.drop().rows.is_due
    regions.compactions.compact(CompactionType.FULL)
    regions.check([after])
    assert regions.drop().rows.is_due
    regions.check([])


def test_change_files_that_were_merged_with_each_other_go_too(tmp_path: Path) -> None:
    """Such a file has rows of several transactions, of which some may be in the base store."""
    aging = Aging(tmp_path, delta_rewrite=True)
    aging.insert(row(1, OLD), row(1, YOUNG))
    aging.compactions.compact()
    aging.insert(row(2, OLD), row(2, YOUNG))
    for number in range(3, 6):
        aging.write(("DELETE", row(1, OLD)), ("INSERT", row(number, OLD)))
    tasks = aging.compactions.merge(aging.compactions.plan_rewrites())
    assert aging.compactions.commit(tasks).committed
    assert aging.drop().rows.is_due
    aging.check([row(1, YOUNG), row(2, YOUNG)])
    aging.compactions.compact(CompactionType.FULL)
    aging.check([row(1, YOUNG), row(2, YOUNG)])


def test_the_age_counts_from_the_newest_commit_of_a_writer_to_either_store(aging: Aging) -> None:
    aging.insert(row(1, date(1999, 1, 1)))
    written = max(one.timestamp_ms for one in aging.stores()[1].snapshots())
    aging.compactions.compact()
    cutoff = aging.drop(later=timedelta(days=99)).rows.cutoff
    assert cutoff is not None
    assert cutoff.timestamp() * 1000 == pytest.approx(written - 10 * 86_400_000)


@pytest.mark.parametrize("seed", range(6))
def test_no_row_comes_back_whatever_else_happens_to_the_table(tmp_path: Path, seed: int) -> None:
    """Writers, compactions whose merges were made before the drop, and drops, in any order."""
    random, aging = Random(seed), Aging(tmp_path)
    days = [OLDER, OLD, YOUNG]
    rows: dict[tuple[int, date], Row] = {}
    merged: list[Any] = []
    for step in range(14):
        act = random.choice(["write", "write", "write", "merge", "commit", "drop"])
        if act == "write":
            changes = []
            for number in random.sample(range(8), 3):
                day = random.choice(days)
                known, new = rows.get((number, day)), row(number, day, f"v{step}")
                if known is None:
                    changes.append(("INSERT", new))
                elif random.random() < 0.5:
                    changes.append(("DELETE", known))
                    del rows[number, day]
                    continue
                else:
                    changes += [("UPDATE_BEFORE", known), ("UPDATE_AFTER", new)]
                rows[number, day] = new
            aging.write(*changes)
        elif act == "merge":
            merged = aging.compactions.merge(aging.compactions.plan(random.choice([CompactionType.MAJOR, CompactionType.FULL])))
        elif act == "commit" and merged:
            aging.compactions.commit(merged)
            merged = []
        elif act == "drop":
            aging.drop()
            rows = {key: one for key, one in rows.items() if key[1] == YOUNG}
        aging.check(rows.values())


@pytest.mark.parametrize("step", ["after-load", "after-validation", "after-manifest", "after-manifest-list", "before-swap", "after-swap"])
def test_a_drop_that_is_killed_has_dropped_all_or_nothing_and_the_next_one_ends_it(aging: Aging, step: str) -> None:
    class Killed(BaseException):
        pass

    def kill(at: str) -> None:
        if at == step:
            raise Killed

    rows = [row(1, OLD), row(2, OLDER), row(3, YOUNG)]
    aging.insert(*rows)
    aging.compactions.compact()
    aging.write(("DELETE", rows[0]), ("INSERT", row(4, OLD)))
    committer = IcebergUpkeepCommitter(aging.catalogs, lambda: datetime.now(timezone.utc), on_step=kill, sleep=lambda seconds: None)
    (target,) = committer.targets(TableIdentifier("lake", ("db",), "t"), UpkeepWork.OLD_ROWS)
    with pytest.raises(Killed):
        committer.commit(target, RecordId("killed"), {})
    aging.check([row(3, YOUNG)] if step == "after-swap" else [rows[1], rows[2], row(4, OLD)])
    aging.drop()
    aging.check([row(3, YOUNG)])
    assert committer.settle(target, RecordId("killed")).state is (CommitState.COMMITTED if step == "after-swap" else CommitState.NOTHING)
