"""Which partitions have won files since an earlier reading, and when. What is expected is counted by fastavro, or written by hand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import DayTransform, IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestamptzType

from compaction_pipeline.core.dependencies.ports import PartitionReading, TableFacts
from compaction_pipeline.core.dependencies.ready_time import SpecField
from compaction_pipeline.core.errors import StorageUnavailable, TableRefused
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.history import MAIN
from compaction_pipeline.iceberg.dependencies.facts_reader import IcebergFactsReader
from compaction_pipeline.iceberg.dependencies.manifest_places import Handle
from compaction_pipeline.iceberg.dependencies.raw_metadata import RawField
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline_tests.iceberg.dependencies.raw_tables import KINDS, written
from compaction_pipeline_tests.iceberg.dependencies.test_facts_reader import add
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.iceberg.upkeep.manifest_work import ManifestWork

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
EU, US = Record("eu"), Record("us")


class Read:
    """A table whose partitions are read again and again."""

    def __init__(self, table: LakeTable) -> None:
        self.table = table
        self.reader = IcebergFactsReader(table.lake.catalogs)
        self.since: tuple[int | None, ...] | None = None

    @property
    def facts(self) -> TableFacts:
        return self.reader.read(self.table.identifier)

    def again(self) -> PartitionReading:
        """What is new since the last reading."""
        reading = self.reader.partition_commits(self.facts, self.since)
        self.since = reading.heads
        return reading

    def made(self, snapshot_id: int | None = None) -> datetime:
        """The time of a snapshot; None means the head."""
        history = self.facts.stores[0].history
        return history.snapshots[snapshot_id or history.refs[MAIN].snapshot_id].made_at


def told(reading: PartitionReading) -> dict[str, tuple[int, datetime | None]]:
    """By the text of the partition: how many files it won, and when some were added."""
    return {"/".join(map(str, one.partition)): (one.files, one.added_at) for one in reading.commits}


@pytest.fixture
def table(lake: Lake) -> LakeTable:
    return lake.table(spec=BY_NAME)


def rows(*ids: int, name: str = "eu") -> list[dict[str, Any]]:
    return [{"id": one, "name": name} for one in ids]


def test_a_reading_tells_what_was_added_since_the_one_before(table: LakeTable) -> None:
    read = Read(table)
    empty = read.again()
    assert (empty.heads, empty.anew, empty.commits) == ((None,), True, ())
    table.insert(*rows(1, 2), partition=EU)
    first = read.made()
    table.insert(*rows(3, name="us"), partition=US)
    reading = read.again()
    assert told(reading) == {"name=eu": (1, first), "name=us": (1, read.made())}
    assert not reading.anew
    assert told(read.again()) == {}
    table.insert(*rows(4), partition=EU)
    [commit] = read.again().commits
    assert (commit.files, commit.added_at, commit.added_by) == (1, read.made(), read.since[0] if read.since else None)


def test_the_first_reading_tells_all(table: LakeTable) -> None:
    for number in range(3):
        table.insert(*rows(number), partition=EU)
    reading = Read(table).again()
    assert reading.anew
    assert told(reading) == {"name=eu": (3, Read(table).made())}


def test_a_merge_adds_nothing(table: LakeTable) -> None:
    read = Read(table)
    for number in range(3):
        table.insert(*rows(number), partition=EU)
    added = read.made()
    assert told(read.again()) == {"name=eu": (3, added)}
    assert table.commit(table.merge()).committed
    assert told(read.again()) == {"name=eu": (-2, None)}
    # Whoever reads for the first time finds only what the merge wrote: it was there when the merge was planned.
    assert told(Read(table).again()) == {"name=eu": (1, added)}


def test_files_that_a_merge_took_away_before_the_reading_were_added(table: LakeTable) -> None:
    read = Read(table)
    table.insert(*rows(1), partition=EU)
    read.again()
    table.insert(*rows(2), partition=EU)
    added = read.made()
    assert table.commit(table.merge()).committed
    assert told(read.again()) == {"name=eu": (0, added)}


def test_a_conversion_of_ours_adds_nothing(lake: Lake) -> None:
    table = lake.table()
    file = table.ids(1, 2)
    table.delete_ids(1)
    read = Read(table)
    read.again()
    assert table.commit(
        table.convert([file.path], [one.path for one in table.files() if one.content is FileContent.EQUALITY_DELETES])
    ).committed
    assert {(one.files, one.added_at) for one in read.again().commits} <= {(0, None)}


def test_deletes_are_added_files(table: LakeTable) -> None:
    file = table.insert(*rows(1, 2), partition=EU)
    read = Read(table)
    read.again()
    table.delete_positions((file.path, 0), partition=EU)
    assert told(read.again()) == {"name=eu": (1, read.made())}


def test_a_partition_that_was_dropped_has_no_files(table: LakeTable) -> None:
    table.insert(*rows(1), partition=EU)
    table.insert(*rows(2, name="us"), partition=US)
    read = Read(table)
    read.again()
    table.table.refresh()
    table.table.delete("name = 'eu'")
    assert told(read.again()) == {"name=eu": (-1, None)}
    assert list(told(Read(table).again())) == ["name=us"]


def test_manifests_that_later_snapshots_merged_hide_nothing(lake: Lake) -> None:
    table = lake.table(spec=BY_NAME, properties={"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    read = Read(table)
    read.again()
    times = {}
    for number, name in enumerate(("eu", "us", "asia")):
        table.table.refresh()
        table.table.append(arrow(table, rows(number, name=name)))
        times[f"name={name}"] = read.made()
    assert len(table.lake.scan.manifests(table.identifier, table.head().snapshot_id or 0)) == 1
    assert told(read.again()) == {name: (1, at) for name, at in times.items()}


def arrow(table: LakeTable, values: list[dict[str, Any]]) -> Any:
    return pa.Table.from_pylist(values, schema=table.table.schema().as_arrow())


def test_manifests_that_upkeep_wrote_again_change_nothing(lake: Lake) -> None:
    table = lake.table(spec=BY_NAME, properties={"commit.manifest.min-count-to-merge": "2"})
    read = Read(table)
    for number in range(8):
        table.insert(*rows(number), partition=EU)
    added = read.made()
    read.again()
    before = table.head().snapshot_id
    ManifestWork(lake.catalogs).rewrite(table.identifier)
    if table.head().snapshot_id == before:
        pytest.fail("no manifests were rewritten: the test proves nothing")
    assert told(read.again()) == {}
    assert told(Read(table).again()) == {"name=eu": (8, added)}


def test_a_rollback_is_read_anew(table: LakeTable) -> None:
    table.insert(*rows(1), partition=EU)
    kept = table.head().snapshot_id
    table.insert(*rows(2), partition=EU)
    table.insert(*rows(3, name="us"), partition=US)
    read = Read(table)
    read.again()
    assert kept is not None
    table.table.manage_snapshots().rollback_to_snapshot(kept).commit()
    reading = read.again()
    assert reading.anew
    assert told(reading) == {"name=eu": (1, read.made(kept))}
    assert not read.again().anew


def test_a_reading_whose_snapshot_has_expired_is_followed_by_a_whole_one(table: LakeTable) -> None:
    read = Read(table)
    table.insert(*rows(1), partition=EU)
    read.again()
    gone = read.since[0] if read.since else None
    table.insert(*rows(2), partition=EU)
    assert gone is not None
    table.table.refresh()
    table.table.maintenance.expire_snapshots().by_id(gone).commit()
    reading = read.again()
    assert reading.anew
    # The file of the expired snapshot is at least as old as the oldest snapshot that is left.
    assert told(reading) == {"name=eu": (2, read.made())}


def test_another_branch_adds_nothing_to_main(table: LakeTable) -> None:
    table.insert(*rows(1), partition=EU)
    read = Read(table)
    read.again()
    table.table.refresh()
    table.table.manage_snapshots().create_branch(table.head().snapshot_id or 0, "audit").commit()
    table.table.append(arrow(table, rows(2)), branch="audit")
    assert told(read.again()) == {}


def test_partitions_of_several_specs_are_told_apart(table: LakeTable) -> None:
    table.insert(*rows(1), partition=EU)
    read = Read(table)
    read.again()
    with table.table.update_spec() as spec:
        spec.remove_field("name")
        spec.add_field("id", "bucket[4]", "b")
    table.insert(*rows(2), partition=Record(3), spec_id=1)
    reading = Read(table).again()
    assert {(one.spec_id, "/".join(map(str, one.partition))) for one in reading.commits} == {(0, "name=eu"), (1, "b=3")}


def test_partitions_by_day_have_the_values_of_the_planner(lake: Lake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestamptzType()), NestedField(3, "s", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, DayTransform(), "at_day"), PartitionField(3, 1001, VoidTransform(), "s_void"))
    table = lake.table(schema=schema, spec=spec)
    table.insert({"id": 1, "at": datetime.fromisoformat("2026-01-02T03:00:00+00:00"), "s": "x"}, partition=Record(20455, None))
    [file] = table.files()
    assert [one.partition for one in Read(table).again().commits] == [file.partition]
    assert str(file.partition[0]) == "at_day=2026-01-02"


@pytest.mark.parametrize("version", [1, 2])
def test_format_v1_is_read_too(lake: Lake, version: int) -> None:
    table = lake.table(spec=BY_NAME, version=version)
    read = Read(table)
    table.table.append(arrow(table, rows(1)))
    first = read.again()
    table.table.append(arrow(table, rows(2)))
    assert (first.anew, told(read.again())) == (True, {"name=eu": (1, read.made())})


# ---- refused, in words -----------------------------------------------------------------------------------------------


def changed(facts: TableFacts, **handle: Any) -> TableFacts:
    [store] = facts.stores
    return replace(facts, stores=(replace(store, handle=replace(store.handle, **handle)),))


def test_what_cannot_be_read_is_refused_in_words(table: LakeTable) -> None:
    table.insert(*rows(1), partition=EU)
    read = Read(table)
    facts = read.facts
    [store] = facts.stores
    handle: Handle = store.handle
    other = RawField(1000, SpecField("name", "zorder", 2, "string"), (2,))
    cases = {
        r"is of format v4, whose manifests this version does not read: 'exists' and 'quiet' need them": changed(facts, format_version=4),
        r"is encrypted \('encryption.key-id' is 'k'\)": replace(
            facts, stores=(replace(store, properties={**store.properties, "encryption.key-id": "k"}),)
        ),
        r"is encrypted \(its snapshot \d+ has the key 'k'\)": changed(
            facts, snapshots={number: replace(one, key_id="k") for number, one in handle.snapshots.items()}
        ),
        r"its partition field 'name' \(zorder of string\) is not known": changed(facts, specs={0: (other,)}),
        r"its partition field 'name' \(identity of no known column\) is not known": changed(
            facts, specs={0: (replace(other, known=SpecField("name", "identity", 9, "")),)}
        ),
        r"has files of partition spec 0, which its metadata lacks": changed(facts, specs={}),
    }
    for sentence, given in cases.items():
        with pytest.raises(TableRefused, match=sentence):
            read.reader.partition_commits(given, None)


@pytest.mark.parametrize(("what", "why"), [("encrypted", "is encrypted"), ("v4", "is of format v4")])
def test_tables_that_tell_their_watermark_may_tell_nothing_of_partitions(lake: Lake, tmp_path: Path, what: str, why: str) -> None:
    add(lake, "raw", written(tmp_path, KINDS[what]))
    reader = IcebergFactsReader(lake.catalogs)
    facts = reader.read(TableIdentifier("lake", ("db",), "raw"))
    with pytest.raises(TableRefused, match=f"table lake.db.raw {why}.*use 'watermark', 'flag' or 'reported'"):
        reader.partition_commits(facts, None)


def test_credentials_that_may_have_ended_are_asked_for_again_when_there_is_something_to_read(table: LakeTable) -> None:
    """What was read of metadata is kept for longer than a catalog's credentials hold."""
    now, loads = [0.0], [0]
    catalogs = table.lake.catalogs
    load = catalogs.load_raw

    def load_raw(name: TableIdentifier, known: str | None = None) -> Any:
        loads[0] += known is None
        return load(name, known)

    catalogs.load_raw = load_raw  # type: ignore[method-assign]
    table.insert(*rows(1), partition=EU)
    reader = IcebergFactsReader(catalogs, lambda: now[0])
    first = reader.partition_commits(reader.read(table.identifier), None)
    assert loads == [1]
    now[0] = 3600
    facts = reader.read(table.identifier)
    assert reader.partition_commits(facts, first.heads).commits == ()
    assert loads == [1]
    assert reader.partition_commits(facts, None).commits == first.commits
    assert loads == [2]


def test_a_manifest_that_is_lost_is_an_error(table: LakeTable) -> None:
    table.insert(*rows(1), partition=EU)
    read = Read(table)
    facts = read.facts
    for manifest in table.lake.scan.manifests(table.identifier, table.head().snapshot_id or 0):
        table.table.io.delete(manifest.path)
    with pytest.raises(StorageUnavailable):
        read.reader.partition_commits(facts, None)


# ---- both stores -----------------------------------------------------------------------------------------------------


def test_changes_and_what_is_merged_of_them_count_together(lake: Lake) -> None:
    names = {"table-format": "MIXED_ICEBERG", "mixed-format.primary-key-fields": "id", "mixed-format.change.identifier": "db.t_change_"}
    base = lake.table("t", spec=BY_NAME, properties={**names, "mixed-format.table-store": "base"})
    change = lake.table("t_change_", spec=BY_NAME, properties={**names, "mixed-format.table-store": "change"})
    read = Read(base)
    assert read.again().heads == (None, None)
    change.insert(*rows(1), partition=EU)
    change.insert(*rows(2, name="us"), partition=US)
    made = [one.made_at for one in read.facts.stores[1].history.snapshots.values()]
    assert told(read.again()) == {"name=eu": (1, made[0]), "name=us": (1, made[1])}
    # A commit of a compaction moves the changes of one partition into the base store.
    [changes] = [one for one in change.files() if str(one.partition[0]) == "name=eu"]
    overwrite(base, base.data_file(rows(1), EU), [], {"compaction-pipeline.record-id": "r1"})
    overwrite(change, None, [changes], {"compaction-pipeline.record-id": "r1"})
    assert told(read.again()) == {}
    # An overwrite of a writer is no compaction.
    overwrite(base, base.data_file(rows(5), EU), [one for one in base.files() if one.is_data], {})
    assert told(read.again()) == {"name=eu": (0, read.made())}


def overwrite(table: LakeTable, added: Any, removed: list[LiveFile], summary: Mapping[str, str]) -> None:
    table.table.refresh()
    files = [AddedFile(data_file_of(added, partition_struct(table.table.metadata, added.spec_id)))] if added is not None else []
    transaction = Transaction(table.table)
    transaction.stage(SnapshotChange(Operation.OVERWRITE, files, removed, dict(summary)))
    transaction.commit()


# ---- against a model -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_are_read_as_they_were_written(lake: Lake, seed: int) -> None:
    """Readings at random moments between writers, merges, expiries and rollbacks. fastavro counts the files of the head."""
    dice = random.Random(seed)
    table = lake.table(spec=BY_NAME)
    read = Read(table)
    known: Counter[str] = Counter()
    added: dict[str, datetime] = {}
    counted: Counter[str] = Counter()
    for step in range(30):
        name = dice.choice(("eu", "us", "asia"))
        act = dice.choices(("insert", "merge", "drop", "expire", "read"), (8, 3, 1, 2, 5))[0]
        counted[act] += 1
        if act == "insert":
            table.insert(*rows(step, name=name), partition=Record(name))
            added[f"name={name}"] = read.made()
        elif act == "merge" and (files := [one.path for one in table.files() if str(one.partition[0]) == f"name={name}"]):
            assert table.commit(table.merge(files, f"m{step}"), record=f"r{step}").committed
        elif act == "drop" and table.head().snapshot_id is not None:
            table.table.refresh()
            table.table.delete(f"name = '{name}'")
        elif act == "expire" and read.since is not None:
            table.table.refresh()
            old = [one.snapshot_id for one in table.table.metadata.snapshots[:-1]]
            # What was read stays, so that the next reading is no whole one.
            gone = [one for one in old[: len(old) // 3] if one not in read.since]
            if gone and not behind(read, gone):
                table.table.maintenance.expire_snapshots().by_ids(gone).commit()
        elif act == "read":
            reading = read.again()
            if reading.anew:
                known.clear()
            known.update({name: files for name, (files, _) in told(reading).items()})
            assert +known == live(table)
            assert {name: at for name, (_, at) in told(reading).items() if at is not None} == added
            added = {}
    assert counted["read"] >= 3


def behind(read: Read, gone: list[int]) -> bool:
    """Whether one of these snapshots is newer than what was read."""
    assert read.since is not None
    history = read.facts.stores[0].history
    if read.since[0] is None:
        return True
    return not set(gone) <= {one.snapshot_id for one in history.ancestry(read.since[0])}


def live(table: LakeTable) -> Counter[str]:
    """The live files of the head by partition, counted by fastavro."""
    table.table.refresh()
    if table.table.current_snapshot() is None:
        return Counter()
    return Counter(f"name={one['data_file']['partition']['name']}" for one in table.judged_entries() if one["status"] != 2)
