"""Old rows leave a table in one snapshot, and no other row leaves or comes back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from itertools import count
from random import Random
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, MonthTransform, TruncateTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DoubleType, IntegerType, ListType, LongType, NestedField, StringType, StructType, TimestampType

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import ConfigError, TableRefused
from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.upkeep.commit_record import UpkeepTarget
from compaction_pipeline.core.upkeep.old_rows import Age
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog
from compaction_pipeline.iceberg.head_reader import HeadReader
from compaction_pipeline.iceberg.manifests.partitions import partition_record, partition_struct
from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter
from compaction_pipeline.iceberg.upkeep.old_rows import DropOldRows, PlannedRows
from compaction_pipeline.iceberg.upkeep.remove_snapshots import unchanged
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

NOW = datetime(2024, 3, 31, 12, tzinfo=timezone.utc)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "at", TimestampType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "text", StringType()),
    NestedField(5, "n", IntegerType()),
    NestedField(6, "ratio", DoubleType()),
    NestedField(7, "tags", ListType(8, TimestampType())),
    NestedField(9, "inner", StructType(NestedField(10, "at", TimestampType()))),
    identifier_field_ids=[1],
)
BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"))
TEN_DAYS = {"data-expire.field": "at", "data-expire.retention-time": "10d", "data-expire.base-on-rule": "CURRENT_TIME"}
BY_FILE = {**TEN_DAYS, "data-expire.level": "FILE"}
EPOCH = date(1970, 1, 1)


def table(lake: Lake, properties: Mapping[str, str] = TEN_DAYS, spec: PartitionSpec = BY_DAY, version: int = 2) -> LakeTable:
    return lake.table("t", SCHEMA, spec, version, properties)


def committer(t: LakeTable, now: datetime = NOW) -> tuple[IcebergUpkeepCommitter, UpkeepTarget]:
    found = IcebergUpkeepCommitter(t.lake.catalogs, lambda: now, sleep=lambda seconds: None)
    (target,) = found.targets(t.identifier, UpkeepWork.OLD_ROWS)
    return found, target


def look(t: LakeTable, now: datetime = NOW) -> PlannedRows:
    """What would go."""
    loaded = t.table.refresh()
    return DropOldRows(t.lake.catalogs, committer(t, now)[1], {}, lambda: now).plan(loaded, HeadReader(loaded.io))


def drop(t: LakeTable, now: datetime = NOW) -> PlannedRows:
    """Drop the old rows. Returns what went."""
    plan, (found, target) = look(t, now), committer(t, now)
    assert found.look(target, {}) == plan.said
    outcome = found.commit(target, RecordId(f"drop-{uuid4().hex}"), {})
    assert outcome.state is (CommitState.COMMITTED if plan.rows.is_due else CommitState.NOTHING)
    assert outcome.figures == plan.rows.figures
    assert outcome.reason == (plan.rows.reason if plan.rows.is_due else plan.said.reason)
    return plan


def rows(days: Sequence[float], first: int = 1, **more: Any) -> list[dict[str, Any]]:
    """Rows that are so many days old."""
    return [
        {"id": number, "at": (at := (NOW - timedelta(days=one)).replace(tzinfo=None)), "day": at.date(), "text": str(at.date()), **more}
        for number, one in enumerate(days, first)
    ]


def of_day(days: float) -> Record:
    """The partition of the rows that are so many days old."""
    return Record(((NOW - timedelta(days=days)).date() - EPOCH).days)


def insert(t: LakeTable, days: Sequence[float], first: int = 1, **more: Any) -> str:
    """Add a file of rows that are so many days old; all are of the day of the first. Returns its path."""
    return t.insert(*rows(days, first, **more), partition=of_day(days[0]) if t.table.refresh().spec().fields else None).path


def summary(t: LakeTable) -> dict[str, str]:
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


@pytest.mark.parametrize("version", [1, 2])
def test_whole_partitions_of_old_rows_leave_in_one_delete(lake: Lake, version: int) -> None:
    t = table(lake, version=version)
    insert(t, [20, 20.1])
    insert(t, [12], 3)
    insert(t, [3], 4)
    before = len(t.table.refresh().snapshots())
    plan = drop(t)
    assert t.live_ids() == [4]
    assert len(t.table.refresh().snapshots()) == before + 1
    said = summary(t)
    assert said["operation"] == "delete"
    assert (said["deleted-data-files"], said["deleted-records"], said["total-records"]) == ("2", "3", "1")
    assert said["snapshot.producer"] == "DATA_EXPIRATION"
    assert plan.rows.figures["rows"] == 3
    assert [str(place).partition(" (")[0] for place in plan.rows.places] == ["at_day=2024-03-11", "at_day=2024-03-19"]
    assert not look(t).rows.is_due


def test_nothing_goes_before_a_partition_is_old_as_a_whole(lake: Lake) -> None:
    t = table(lake)
    insert(t, [10.1])
    insert(t, [9.9], 2)
    assert not drop(t).rows.is_due
    assert t.live_ids() == [1, 2]
    t.table.transaction().set_properties(BY_FILE).commit_transaction()
    drop(t)
    assert t.live_ids() == [2]


def test_rows_without_a_time_stay_with_their_file(lake: Lake) -> None:
    t = table(lake, BY_FILE, UNPARTITIONED_PARTITION_SPEC)
    t.insert(*rows([20]), {"id": 2, "at": None})
    t.insert({"id": 3, "at": None})
    insert(t, [20], 4)
    drop(t)
    assert t.live_ids() == [1, 2, 3]


def test_deletes_of_other_files_stay_and_no_row_comes_back(lake: Lake) -> None:
    """Equality deletes without a partition reach every partition. Those that reach a row of a young one must stay."""
    t = table(lake)
    old, young = insert(t, [20, 20, 20]), insert(t, [3, 3, 3], 11)
    with t.table.update_spec() as update:
        update.remove_field("at_day")
    everywhere = t.delete_ids(1, 11).path
    in_old = t.equality_file({"id": [2]}, (1,), of_day(20), 0)
    row_delta(t.table, equality_deletes=[(in_old, [1])])
    positions, others = (
        t.position_file([(path, at)], partition=of_day(days), spec_id=0) for path, at, days in ((old, 2, 20), (young, 1, 3))
    )
    row_delta(t.table, position_deletes=[positions, others])
    assert t.live_ids() == [13]
    plan = drop(t)
    assert t.live_ids() == [13]
    assert t.paths(FileContent.DATA) == {young}
    assert t.paths(FileContent.EQUALITY_DELETES) == {everywhere}
    assert t.paths(FileContent.POSITION_DELETES) == {others.path}
    assert plan.rows.figures["delete_files"] == 2


def test_a_delete_goes_only_when_no_file_of_its_partition_is_left(lake: Lake) -> None:
    t = table(lake, BY_FILE)
    insert(t, [10.1])
    young = insert(t, [9.9], 2)
    # It reaches both files, and row 2 must not come back.
    t.delete_ids(1, 2, partition=of_day(10.1))
    shared = t.position_file([(young, 0)], referenced=False, partition=of_day(10.1))
    row_delta(t.table, position_deletes=[shared])
    drop(t)
    assert t.live_ids() == []
    assert t.paths(FileContent.DATA) == {young}
    assert len(t.paths(FileContent.EQUALITY_DELETES)) == len(t.paths(FileContent.POSITION_DELETES)) == 1


def evolved(t: LakeTable) -> None:
    """The same column under another name, in a table with another partition spec."""
    with t.table.update_schema() as update:
        update.rename_column("at", "time")
    with t.table.update_spec() as update:
        update.remove_field("at_day")
        update.add_field("time", MonthTransform(), "time_month")
    t.table.transaction().set_properties({**TEN_DAYS, "data-expire.field": "time"}).commit_transaction()


def test_files_of_older_specs_and_of_a_renamed_column_are_judged_by_its_id(lake: Lake) -> None:
    t = table(lake)
    insert(t, [20])
    insert(t, [3], 2)
    evolved(t)
    march, january = Record(54 * 12 + 2), Record(54 * 12)
    for number, (days, partition) in enumerate([(15.0, march), (5.0, march), (75.0, january)], 3):
        (made,) = rows([days], number)
        t.insert({**made, "time": made.pop("at")}, partition=partition)
    plan = drop(t)
    assert t.live_ids() == [2, 3, 4]
    assert [str(place).partition(" (")[0] for place in plan.rows.places] == ["at_day=2024-03-11", "time_month=648"]


def test_a_column_that_was_dropped_and_made_again_has_no_old_times(lake: Lake) -> None:
    t = table(lake, BY_FILE, UNPARTITIONED_PARTITION_SPEC)
    insert(t, [20])
    with t.table.update_schema() as update:
        update.delete_column("at")
    with t.table.update_schema() as update:
        update.add_column("at", TimestampType())
    assert not look(t).rows.is_due
    t.insert(*rows([20], 2))
    drop(t)
    assert t.live_ids() == [1]


def test_a_number_that_became_a_long_is_read_with_its_old_bounds(lake: Lake) -> None:
    seconds = {"data-expire.field": "n", "data-expire.datetime-number-format": "TIMESTAMP_S"}
    t = table(lake, {**BY_FILE, **seconds}, UNPARTITIONED_PARTITION_SPEC)
    old, young = (int((NOW - timedelta(days=days)).timestamp()) for days in (20, 3))
    t.insert(*rows([0], 1, n=old))
    t.insert(*rows([0], 2, n=young))
    with pytest.raises(ConfigError, match="is 'n', which is of the type int"):
        look(t)
    with t.table.update_schema() as update:
        update.update_column("n", LongType())
    t.insert(*rows([0], 3, n=old))
    drop(t)
    assert t.live_ids() == [2]


@pytest.mark.parametrize("transform", [BucketTransform(4), TruncateTransform(4), VoidTransform(), IdentityTransform()])
def test_bounds_of_texts_that_were_cut_prove_what_they_can(lake: Lake, transform: Any) -> None:
    """Iceberg cuts the bounds of texts after 16 characters, so those of a time to the second end with its minute."""
    pattern = {"data-expire.field": "text", "data-expire.datetime-string-pattern": "yyyy-MM-dd HH:mm:ss"}
    spec = PartitionSpec(PartitionField(4, 1000, transform, "text_part"))
    t = table(lake, {**BY_FILE, **pattern}, spec)
    cutoff = NOW - timedelta(days=10)
    texts = [str((cutoff + timedelta(seconds=late)).replace(tzinfo=None)) for late in (-61, -1, 0, 59)]
    for number, text in enumerate([*texts, "", "n/a"], 1):
        t.insert(*rows([0], number, text=text), partition=Record(transform.transform(StringType())(text)))
    drop(t)
    assert t.live_ids() == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "the table has no column of this name"),
        ("tags", "which is a struct, a list or a map, or part of a list or a map"),
        ("tags.element", "which is a struct, a list or a map, or part of a list or a map"),
        ("inner", "which is a struct, a list or a map, or part of a list or a map"),
        ("ratio", "of the type double, but its type must be one of date, timestamp, timestamptz, long, string"),
    ],
)
def test_a_column_that_cannot_have_the_times_is_refused(lake: Lake, name: str, why: str) -> None:
    t = table(lake, {**TEN_DAYS, "data-expire.field": name})
    with pytest.raises(ConfigError, match=why):
        look(t)


def test_files_stay_whose_writer_tells_no_bounds(lake: Lake) -> None:
    """PyIceberg writes none of columns in structs. Spark does, and then such a column counts (`interop/test_old_rows.py`)."""
    t = table(lake, {**BY_FILE, "data-expire.field": "inner.at"}, UNPARTITIONED_PARTITION_SPEC)
    for number, inner in enumerate([{"at": datetime(2024, 1, 1)}, None], 1):
        t.insert(*rows([20], number, inner=inner))
    assert drop(t).rows.reason.endswith("1 data file because a row has no time; 1 data file because nothing tells how old the rows are")


def test_a_partition_of_another_column_proves_nothing(lake: Lake) -> None:
    t = table(lake, {**TEN_DAYS, "data-expire.field": "inner.at"})
    insert(t, [20], inner={"at": NOW.replace(tzinfo=None)})
    assert drop(t).rows.reason.endswith("1 data file because nothing tells how old the rows are")
    assert t.live_ids() == [1]


def test_a_partition_of_an_older_spec_still_contradicts_bounds(lake: Lake) -> None:
    t = table(lake)
    t.insert(*rows([20]), partition=of_day(3))
    with t.table.update_spec() as update:
        update.remove_field("at_day")
    assert Age.CONTRADICTION.value in drop(t).rows.reason
    assert t.live_ids() == [1]


def test_a_delete_file_that_is_live_twice_stays(lake: Lake) -> None:
    """Its entries cannot be told apart. Nothing needs it any more, so it does no harm."""
    t = table(lake)
    old = insert(t, [20, 20.1])
    position = t.position_file([(old, 0)], partition=of_day(20))
    for _ in range(2):
        row_delta(t.table.refresh(), position_deletes=[position])
    assert drop(t).rows.figures["delete_files"] == 0
    assert (t.live_ids(), t.paths(FileContent.DATA)) == ([], set())
    assert t.paths(FileContent.POSITION_DELETES) == {position.path}


def renamed(t: LakeTable) -> None:
    with t.table.refresh().update_schema() as update:
        update.rename_column("at", "former")
        update.rename_column("day", "at")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gc.enabled": "false"}, "'gc.enabled' is false"),
        ({"data-expire.retention-time": "9999d"}, "nothing has only times before"),
        (None, "a row may be younger"),
    ],
)
def test_what_changes_without_a_snapshot_just_before_the_swap_stops_the_drop(lake: Lake, change: dict[str, str] | None, why: str) -> None:
    t = table(lake, spec=UNPARTITIONED_PARTITION_SPEC)
    (made,) = rows([20])
    t.insert({**made, "day": NOW.date()})
    steps: list[str] = []

    def act(step: str) -> None:
        if step == "before-swap":
            steps.append(step)
            if change is None:
                renamed(t)
            else:
                t.table.refresh().transaction().set_properties(change).commit_transaction()

    found = IcebergUpkeepCommitter(t.lake.catalogs, lambda: NOW, on_step=act, sleep=lambda seconds: None)
    try:
        said = found.commit(committer(t)[1], RecordId("drop-1"), {}).reason
    except TableRefused as refusal:
        said = str(refusal)
    assert why in said
    assert (steps, t.live_ids()) == (["before-swap"], [1])


def test_a_rest_catalog_is_asked_for_the_same_columns_and_partitions(lake: Lake) -> None:
    """It writes the metadata itself, so it cannot be asked for the same properties."""
    loaded = table(lake).table
    loaded.catalog = object.__new__(BoundedRestCatalog)
    demanded = {type(one): one for one in unchanged(loaded)}
    assert demanded.keys() == {AssertCurrentSchemaId, AssertDefaultSpecId}
    assert demanded[AssertCurrentSchemaId].current_schema_id == loaded.metadata.current_schema_id  # type: ignore[attr-defined]


def test_the_age_counts_from_the_last_commit_of_a_writer_and_not_from_our_own(lake: Lake) -> None:
    t = table(lake, {key: value for key, value in TEN_DAYS.items() if not key.endswith("rule")})
    insert(t, [20])
    written = datetime.fromtimestamp(t.table.refresh().metadata.snapshots[-1].timestamp_ms / 1000, timezone.utc)
    later = written + timedelta(days=400)
    assert look(t, later).rows.cutoff == written - timedelta(days=10)
    drop(t, later)
    assert t.live_ids() == []
    assert look(t, later).rows.cutoff == written - timedelta(days=10)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({**TEN_DAYS, "gc.enabled": "false"}, "'gc.enabled' is false: nothing of the table is to be removed"),
        ({}, "'data-expire.field' is not set"),
        ({**TEN_DAYS, "mixed-format.table-store": "change"}, "the change store of a keyed"),
        ({**TEN_DAYS, "encryption.key-id": "k"}, "files of an encrypted table"),
    ],
)
def test_a_table_whose_rows_must_stay_is_refused(lake: Lake, properties: dict[str, str], why: str) -> None:
    t = table(lake, properties)
    insert(t, [20])
    found, target = committer(t)
    for act in (lambda: found.look(target, {}), lambda: found.commit(target, RecordId("drop-1"), {})):
        with pytest.raises(TableRefused, match=why):
            act()
    assert t.live_ids() == [1]


def test_rows_that_age_without_a_commit_are_looked_at_again(lake: Lake) -> None:
    t = table(lake)
    insert(t, [9])
    assert look(t).next_look == NOW + timedelta(days=1)
    t.table.transaction().set_properties({"data-expire.retention-time": "6h"}).commit_transaction()
    assert look(t).next_look == NOW + timedelta(hours=6)
    t.table.transaction().set_properties({"data-expire.base-on-rule": "LAST_COMMIT_TIME"}).commit_transaction()
    assert look(t).next_look is None


@pytest.mark.parametrize("seed", range(25))
def test_after_any_history_exactly_proved_old_rows_are_gone(lake: Lake, seed: int) -> None:
    """Files of several specs, with deletes of each kind. What went was old, what is young is there, and nothing has come back."""
    random = Random(seed)
    field = random.choice(["at", "day", "text"])
    t = table(
        lake, {**random.choice([TEN_DAYS, BY_FILE]), "data-expire.field": field}, random.choice([UNPARTITIONED_PARTITION_SPEC, BY_DAY])
    )
    ids = count(1)
    for _ in range(random.randrange(3, 9)):
        if random.random() < 0.2 and not t.table.refresh().spec().fields:
            with t.table.update_spec() as update:
                update.add_field("at", MonthTransform(), "m")
        _random_commit(t, random, ids)
    before = {row["id"]: row[field] for row in t.rows()}
    plan = drop(t)
    after = set(t.live_ids())
    assert after <= before.keys()
    assert len(t.rows()) == len(after)
    gone = {before[number] for number in before.keys() - after}
    first = {"at": NOW - timedelta(days=10), "day": (NOW - timedelta(days=10)).date()}.get(field, str((NOW - timedelta(days=10)).date()))
    limit = first.replace(tzinfo=None) if isinstance(first, datetime) else first
    assert all(value is not None and value < limit for value in gone)
    assert plan.rows.figures["rows"] >= len(gone)
    assert not drop(t).rows.is_due
    assert not [file for file in t.files() if not file.is_data and file.path in {one.path for one in plan.rows.removed}]


def _random_commit(t: LakeTable, random: Random, ids: Iterator[int]) -> None:
    spec = t.table.refresh().spec()
    day = random.choice([3.0, 9.6, 10.4, 11.0, 20.0, 50.0])
    made = rows([day + random.uniform(-0.05, 0.05) for _ in range(random.randrange(1, 4))], next(ids))
    for _ in made[1:]:
        next(ids)
    if random.random() < 0.2 and not spec.fields:
        made[-1] |= {"at": None, "day": None, "text": None}
    at = made[0]["at"]
    partition = {"at_day": of_day(day), "m": Record((at.year - 1970) * 12 + at.month - 1) if at else None}
    files = t.files()
    kind = random.random()
    if kind < 0.6 or not files:
        same = [row for row in made if not spec.fields or (row["at"].date() == at.date())]
        t.insert(*same, partition=partition[spec.fields[0].name] if spec.fields else None)
    elif kind < 0.8:
        chosen = random.choice([file for file in files if file.is_data])
        struct = partition_record(partition_struct(t.table.metadata, chosen.spec_id), chosen.partition)
        positions = t.position_file([(chosen.path, 0)], referenced=random.random() < 0.5, partition=struct, spec_id=chosen.spec_id)
        row_delta(t.table, position_deletes=[positions])
    else:
        chosen = random.choice([file for file in files if file.is_data])
        struct = partition_record(partition_struct(t.table.metadata, chosen.spec_id), chosen.partition)
        numbers = random.sample(range(1, 20), 3)
        deletes = t.equality_file({"id": numbers}, (1,), struct, chosen.spec_id)
        row_delta(t.table, equality_deletes=[(deletes, [1])])
