"""Manifests are rewritten in one snapshot that changes no entry, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.commit.record import RECORD_ID_PROPERTY
from compaction_pipeline.core.errors import CommitRefused, NotFoundError, StorageUnavailable, TableRefused
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepOutcome
from compaction_pipeline.core.upkeep.manifests import ManifestRules, decide_manifests
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.formats.avro.frames import packed
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.manifests import entries as written
from compaction_pipeline.iceberg.manifests.entries import ManifestWriter, entry_of
from compaction_pipeline.iceberg.upkeep import rewrite_manifests as module
from compaction_pipeline.iceberg.upkeep.manifests import listed
from compaction_pipeline_tests.iceberg.faulty_catalog import Faulty, metadata_files, silence_after, silence_before
from compaction_pipeline_tests.iceberg.lake import SCHEMA, Lake, LakeTable
from compaction_pipeline_tests.iceberg.upkeep.manifest_entries import live_entries
from compaction_pipeline_tests.iceberg.upkeep.manifest_work import ManifestWork, counts
from compaction_pipeline_tests.rest_catalog import rest_server
from compaction_pipeline_tests.scenarios.soundness import faults

FEW = {"commit.manifest.min-count-to-merge": "3"}
BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=0)


def rewriter(lake: Lake, on_step: Callable[[str], None] = lambda step: None) -> ManifestWork:
    return ManifestWork(lake.catalogs, on_step)


def rewrite(t: LakeTable, record: str = "rewrite-1") -> UpkeepOutcome:
    outcome = rewriter(t.lake).rewrite(t.identifier, record)
    t.table.refresh()
    return outcome


def rows_of(t: LakeTable) -> Counter[str]:
    """The rows that a reader sees, in any order."""
    return Counter(map(repr, t.rows()))


def manifests(t: LakeTable, content: ManifestContent = ManifestContent.DATA) -> list[ManifestFile]:
    snapshot = t.table.refresh().current_snapshot()
    assert snapshot is not None
    return [one for one in snapshot.manifests(t.table.io) if one.content == content]


def summary(t: LakeTable) -> dict[str, str]:
    snapshot = t.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return {"operation": snapshot.summary.operation.value, **snapshot.summary.additional_properties}


@pytest.mark.parametrize("version", [1, 2])
def test_many_manifests_become_one_and_every_entry_says_the_same(lake: Lake, version: int) -> None:
    t = lake.table(version=version, properties=FEW)
    for number in range(7):
        t.ids(number, number + 100)
    rows, entries, totals = rows_of(t), live_entries(t.table.refresh()), summary(t)
    outcome = rewrite(t)
    assert (outcome.state, outcome.attempts) == (CommitState.COMMITTED, 1)
    assert counts(outcome) == (1, 0, 7)
    (made,) = manifests(t)
    assert (made.added_files_count, made.existing_files_count, made.deleted_files_count, made.existing_rows_count) == (0, 7, 0, 14)
    assert live_entries(t.table) == entries
    assert rows_of(t) == rows
    assert faults(t.table) == []
    said = summary(t)
    assert {key: value for key, value in said.items() if not key.startswith("total-")} == {
        "operation": "replace",
        "manifests-created": "1",
        "manifests-kept": "0",
        "manifests-replaced": "7",
        "entries-processed": "7",
        "changed-partition-count": "0",
        RECORD_ID_PROPERTY: "rewrite-1",
    }
    assert {key: value for key, value in said.items() if key.startswith("total-")} == {
        key: value for key, value in totals.items() if key.startswith("total-")
    }


def test_entries_say_the_same_after_several_rewrites_and_merges_between_them(lake: Lake) -> None:
    t = lake.table(properties=FEW)
    for round_number in range(3):
        for number in range(4):
            t.ids(round_number * 10 + number)
        before = live_entries(t.table.refresh())
        assert rewrite(t, f"rewrite-{round_number}").state is CommitState.COMMITTED
        assert live_entries(t.table) == before
        t.commit(t.merge(sorted(one.path for one in t.files())[:2], f"m{round_number}"), record=f"record-{round_number}")
    assert t.live_ids() == [round_number * 10 + number for round_number in range(3) for number in range(4)]
    assert faults(t.table) == []


def test_deletes_apply_as_before_and_stay_apart_from_data(lake: Lake) -> None:
    t = lake.table(spec=BY_NAME, properties=FEW)
    a = t.insert({"id": 1, "name": "a"}, {"id": 2, "name": "a"}, {"id": 3, "name": "a"}, partition=Record("a"))
    t.delete_positions((a.path, 0), partition=Record("a"))
    t.delete_ids(2, partition=Record("a"))
    # An equality delete does not reach rows of later commits: these live because their sequence numbers are higher.
    t.insert({"id": 2, "name": "a"}, partition=Record("a"))
    t.insert({"id": 4, "name": None}, partition=Record(None))
    t.delete_ids(9, partition=Record("a"))
    assert t.live_ids() == [2, 3, 4]
    rows, entries = rows_of(t), live_entries(t.table.refresh())
    outcome = rewrite(t)
    assert counts(outcome)[::2] == (2, 6)
    assert [len(manifests(t, content)) for content in ManifestContent] == [1, 1]
    assert (rows_of(t), live_entries(t.table)) == (rows, entries)
    (deletes,) = manifests(t, ManifestContent.DELETES)
    assert deletes.min_sequence_number == 2
    assert faults(t.table) == []


def test_manifests_of_several_specs_are_rewritten_apart(lake: Lake) -> None:
    schema = Schema(*SCHEMA.fields, NestedField(3, "ratio", DoubleType()))
    spec = PartitionSpec(
        PartitionField(1, 1000, BucketTransform(4), "bucket"), PartitionField(3, 1001, IdentityTransform(), "ratio"), spec_id=0
    )
    t = lake.table(schema=schema, spec=spec, properties=FEW)
    bucket = BucketTransform(4).transform(LongType())
    ratios = [0.1, float("nan"), -0.0, 0.0, None, 2.5e300]
    for number, ratio in enumerate(ratios):
        t.insert({"id": number, "name": "x", "ratio": ratio}, partition=Record(bucket(number), ratio))
    with t.table.update_spec() as update:
        update.remove_field("ratio")
        update.add_field("name", TruncateTransform(2), "start")
    t.table.refresh()
    assert t.table.spec().spec_id == 1
    for number in range(4):
        t.insert({"id": 10 + number, "name": "xyz", "ratio": 1.0}, partition=Record(bucket(10 + number), "xy"), spec_id=1)
    entries, rows = live_entries(t.table.refresh()), rows_of(t)
    outcome = rewrite(t)
    assert counts(outcome)[::2] == (2, 10)
    assert {one.partition_spec_id for one in manifests(t)} == {0, 1}
    assert live_entries(t.table) == entries
    assert rows_of(t) == rows


def test_manifests_of_a_spec_whose_column_is_in_no_schema_stay_as_they_are(lake: Lake) -> None:
    t = lake.table(spec=BY_NAME, properties=FEW)
    for number in range(4):
        t.insert({"id": number, "name": f"n{number}"}, partition=Record(f"n{number}"))
    before = manifests(t)
    metadata = t.table.metadata
    # Iceberg forgets old schemas when snapshots expire. This does the same by hand.
    forgotten = Schema(SCHEMA.fields[0], schema_id=metadata.current_schema_id)
    lost = metadata.model_copy(update={"schemas": [forgotten]})
    found = listed(lost, before)
    assert {one.stays_because for one in found} == {"it is partitioned by column id 2, which is in no schema of the metadata any more"}
    assert not decide_manifests(found, ManifestRules(min_count=3)).is_due
    assert {one.stays_because for one in listed(metadata, before)} == {None}


def many_partitions(lake: Lake, target_bytes: int, commits: int = 12) -> LakeTable:
    """A table whose every commit writes to each of six partitions. Nothing is compressed, so that a few entries fill a manifest."""
    sizes = {"commit.manifest.target-size-bytes": str(target_bytes), "write.avro.compression-codec": "null"}
    t = lake.table(spec=BY_NAME, properties={**FEW, **sizes})
    for commit in range(commits):
        files = [t.data_file([{"id": 100 * commit + number, "name": f"p{number}"}], Record(f"p{number}"), 0) for number in range(6)]
        row_delta(t.table, files)
    return t


def test_new_manifests_are_about_the_target_and_a_reader_of_one_partition_opens_few(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    t = many_partitions(lake, target_bytes=12_000, commits=30)
    small = {one.manifest_path for one in manifests(t) if one.manifest_length < 6_000}
    assert len(small) == 30
    entries, rows = live_entries(t.table), rows_of(t)
    monkeypatch.setattr(written, "_ENTRIES_PER_BLOCK", 10)
    outcome = rewrite(t)
    assert counts(outcome)[0] == len(manifests(t)) > 1
    assert (live_entries(t.table), rows_of(t)) == (entries, rows)
    sizes = [one.manifest_length for one in manifests(t)]
    assert min(sizes) > 6_000
    assert max(sizes) < 24_000
    assert outcome.figures["opened_before"] == 30
    assert outcome.figures["opened_after"] <= 2
    assert rewrite(t, "rewrite-2").state is CommitState.NOTHING
    assert faults(t.table) == []


def test_healthy_manifests_stay_as_they_are(lake: Lake) -> None:
    t = many_partitions(lake, target_bytes=9_000)
    healthy = max(manifests(t), key=lambda one: one.manifest_length)
    for number in range(4):
        t.insert({"id": 9000 + number, "name": "p0"}, partition=Record("p0"))
    with t.table.transaction() as change:
        change.set_properties({"commit.manifest.target-size-bytes": str(healthy.manifest_length * 2 - 1)})
    before = {one.manifest_path: one for one in manifests(t)}
    plan = rewriter(lake).look(t.identifier)
    outcome = rewrite(t)
    after = {one.manifest_path: one for one in manifests(t)}
    assert healthy.manifest_path in after
    assert counts(plan)[1] == counts(outcome)[1] == len(set(before) & set(after)) > 0
    assert all(
        tuple(before[path][slot] for slot in range(13)) == tuple(after[path][slot] for slot in range(13))
        for path in set(before) & set(after)
    )


def test_a_second_rewrite_has_nothing_to_do(lake: Lake) -> None:
    t = many_partitions(lake, target_bytes=8 << 20)
    assert rewrite(t).state is CommitState.COMMITTED
    head, files = t.table.metadata.current_snapshot_id, metadata_files(lake)
    outcome = rewrite(t, "rewrite-2")
    assert (outcome.state, outcome.snapshot_before) == (CommitState.NOTHING, head)
    assert outcome.reason.startswith("spec 0 has 1 small data manifest (below 4.2 MB")
    assert (t.table.metadata.current_snapshot_id, metadata_files(lake)) == (head, files)


def test_a_manifest_that_only_lists_removed_files_goes_with_the_others(lake: Lake) -> None:
    t = lake.table(properties={"commit.manifest.min-count-to-merge": "4"})
    for number in range(4):
        t.ids(number)
    with t.table.refresh().transaction() as change:
        change.delete("id == 2")
    live = [bool(one.has_existing_files() or one.has_added_files()) for one in manifests(t)]
    assert sorted(live) == [False, True, True, True]
    entries = live_entries(t.table)
    outcome = rewrite(t)
    assert counts(outcome) == (1, 0, 4)
    assert [one.deleted_files_count for one in manifests(t)] == [0]
    assert live_entries(t.table) == entries
    assert t.live_ids() == [0, 1, 3]


def test_a_table_without_a_snapshot_has_nothing_to_do(lake: Lake) -> None:
    t = lake.table()
    outcome = rewrite(t)
    assert (outcome.state, outcome.reason, outcome.attempts) == (CommitState.NOTHING, "the snapshot has no manifest", 1)


def test_a_look_writes_nothing(lake: Lake) -> None:
    t = many_partitions(lake, target_bytes=8 << 20)
    head, files = t.table.refresh().metadata_location, metadata_files(lake)
    plan = rewriter(lake).look(t.identifier)
    assert plan.reason == "12 small manifests → about 1; manifests that a reader of one partition opens: 12 → 1"
    assert (t.table.refresh().metadata_location, metadata_files(lake)) == (head, files)


# ---- what ends an attempt ------------------------------------------------------------------------------------------------


def filled(lake: Lake) -> LakeTable:
    t = lake.table(properties={**FEW, "commit.retry.num-retries": "2"})
    for number in range(4):
        t.ids(number)
    return t


def listed_files(t: LakeTable) -> set[str]:
    """The names of the manifests and manifest lists that some snapshot has."""
    found = {snapshot.manifest_list for snapshot in t.table.refresh().metadata.snapshots}
    found |= {one.manifest_path for snapshot in t.table.metadata.snapshots for one in snapshot.manifests(t.table.io)}
    return {path.rsplit("/", 1)[-1] for path in found}


@pytest.mark.parametrize("what", ["append", "delete", "merge", "branch"])
def test_a_lost_race_is_tried_again_and_keeps_what_the_other_writer_did(lake: Lake, what: str) -> None:
    t = filled(lake)
    merge = t.merge()
    raced: list[str] = []

    def other(step: str) -> None:
        if step == "before-swap" and not raced:
            raced.append(step)
            {
                "append": lambda: t.ids(50),
                "delete": lambda: t.delete_ids(1),
                "merge": lambda: t.commit(merge),
                "branch": lambda: branch_off(t),
            }[what]()

    outcome = rewriter(lake, other).rewrite(t.identifier, "rewrite-1")
    assert t.live_ids() == {"append": [0, 1, 2, 3, 50], "delete": [0, 2, 3]}.get(what, [0, 1, 2, 3])
    # After the merge one manifest is left, so nothing is due any more.
    assert outcome.state is (CommitState.NOTHING if what == "merge" else CommitState.COMMITTED)
    assert outcome.attempts == 2
    assert metadata_files(lake) == listed_files(t), "the lost attempt left files behind"


def branch_off(t: LakeTable) -> None:
    """Commit to another branch than main. Main does not move, but the sequence number is used."""
    head = t.table.refresh().metadata.current_snapshot_id
    assert head is not None
    t.table.manage_snapshots().create_branch(head, "audit").commit()
    t.table.refresh().add_files([t.data_file([{"id": 60, "name": "b"}]).path], branch="audit", check_duplicate_files=False)


def test_losing_every_race_changes_nothing_and_leaves_nothing(lake: Lake) -> None:
    t = filled(lake)
    numbers = iter(range(100, 200))
    before = set[str]()

    def always_first(step: str) -> None:
        if step == "before-swap":
            t.ids(next(numbers))

    with pytest.raises(StorageUnavailable, match=r"'commit.retry.num-retries' is 2"):
        rewriter(lake, always_first).rewrite(t.identifier, "rewrite-1")
    assert metadata_files(lake) - before == listed_files(t)
    assert t.live_ids() == [0, 1, 2, 3, 100, 101, 102]


def test_a_lost_answer_of_a_rewrite_that_landed_is_found_in_the_table(lake: Lake) -> None:
    t = filled(lake)
    Faulty(lake.catalog, silence_after)
    outcome = rewrite(t)
    assert (outcome.state, counts(outcome)[0], outcome.unanswered) == (CommitState.COMMITTED, 1, True)
    assert len(manifests(t)) == 1


def test_on_an_unknown_outcome_nothing_is_deleted_and_settling_ends_it(lake: Lake) -> None:
    t = filled(lake)
    before = metadata_files(lake)
    Faulty(lake.catalog, silence_before)
    outcome = rewrite(t)
    assert (outcome.state, outcome.unanswered) == (CommitState.UNKNOWN, True)
    assert "nothing is deleted" in outcome.reason
    left = metadata_files(lake) - before
    assert len(left) == 2
    assert all("rewrite-1" in name for name in left)
    assert rewriter(lake).settle(t.identifier, "rewrite-1").state is CommitState.UNKNOWN
    t.ids(50)
    assert rewriter(lake).settle(t.identifier, "rewrite-1").state is CommitState.NOTHING
    assert left <= metadata_files(lake)


def test_a_delayed_request_lands_and_the_same_rewrite_again_only_says_so(lake: Lake) -> None:
    t = filled(lake)
    late: list[Callable[[], Any]] = []

    def swallowed(swap: Callable[[], Any]) -> Any:
        late.append(swap)
        raise CommitStateUnknownException("gateway timeout")

    Faulty(lake.catalog, swallowed)
    assert rewrite(t).state is CommitState.UNKNOWN
    late[0]()
    again = rewrite(t)
    assert (again.state, again.reason) == (CommitState.COMMITTED, f"it landed as snapshot {again.snapshot_after}, as the table shows")
    assert rewriter(lake).settle(t.identifier, "rewrite-1") == UpkeepOutcome(
        CommitState.COMMITTED, again.reason, again.figures, again.snapshot_before, again.snapshot_after
    )
    assert len(t.table.metadata.snapshots) == 5
    assert t.live_ids() == [0, 1, 2, 3]


def test_silence_with_the_head_moved_on_is_a_lost_race_whose_files_stay(lake: Lake) -> None:
    t = filled(lake)
    before = metadata_files(lake)
    Faulty(lake.catalog, lambda swap: (t.ids(50), silence_before(swap)))
    outcome = rewrite(t)
    assert (outcome.state, outcome.attempts, outcome.unanswered) == (CommitState.COMMITTED, 2, True)
    assert t.live_ids() == [0, 1, 2, 3, 50]
    stayed = metadata_files(lake) - before - listed_files(t)
    assert len(stayed) == 2
    assert all("rewrite-1-1-" in name or "-1-rewrite-1" in name for name in stayed)


@pytest.mark.parametrize(
    "properties", [{"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "change"}, {"encryption.key-id": "k"}]
)
def test_a_refused_table_is_refused_in_words(lake: Lake, properties: dict[str, str]) -> None:
    t = filled(lake)
    with t.table.transaction() as change:
        change.set_properties(properties)
    files = metadata_files(lake)
    with pytest.raises(TableRefused, match=r"table-store|encryption"):
        rewrite(t)
    assert metadata_files(lake) == files


def test_a_table_that_is_gone_is_not_found(lake: Lake) -> None:
    with pytest.raises(NotFoundError):
        rewriter(lake).rewrite(TableIdentifier("lake", ("db",), "none"))


@pytest.mark.parametrize("status", [403, 400])
def test_a_refusal_of_a_rest_catalog_changes_nothing_and_leaves_nothing(lake: Lake, status: int) -> None:
    t = filled(lake)
    files = metadata_files(lake)
    with rest_server(lake.catalog) as server:
        catalogs = Catalogs(lambda name: CatalogEntry(name, {"type": "rest", "uri": server.uri}), RequestLimits(60, 60, 60))
        server.commits = [lambda call: call.answer(status, {"error": {"message": "no", "type": "Forbidden", "code": status}})]
        with pytest.raises(CommitRefused, match="then run the command again"):
            ManifestWork(catalogs).rewrite(t.identifier, "rewrite-1")
        assert metadata_files(lake) == files
        done = ManifestWork(catalogs).rewrite(t.identifier, "rewrite-2")
    assert (done.state, counts(done)[0]) == (CommitState.COMMITTED, 1)
    assert t.live_ids() == [0, 1, 2, 3]


# ---- the proof -----------------------------------------------------------------------------------------------------------


def _changed(entry: ManifestEntry, **numbers: int) -> ManifestEntry:
    values = {"snapshot_id": entry.snapshot_id, "sequence_number": entry.sequence_number, "file": entry.file_sequence_number, **numbers}
    return entry_of(entry.status, values["snapshot_id"], values["sequence_number"], values["file"], entry.data_file)


FAULTS: dict[str, Callable[[Sequence[ManifestEntry]], list[ManifestEntry]]] = {
    "one entry is lost": lambda entries: list(entries[1:]),
    "one entry is there twice": lambda entries: [*entries, entries[0]],
    "one entry takes the place of another": lambda entries: [entries[1], *entries[1:]],
    "a data sequence number is another": lambda entries: [
        _changed(entries[0], sequence_number=1 + (entries[0].sequence_number or 0)),
        *entries[1:],
    ],
    "a file sequence number is another": lambda entries: [_changed(entries[0], file=99), *entries[1:]],
    "an entry is called new": lambda entries: [
        entry_of(ManifestEntryStatus.ADDED, *(entries[0][place] for place in range(1, 5))),
        *entries[1:],
    ],
    "a snapshot id is another": lambda entries: [_changed(entries[0], snapshot_id=99), *entries[1:]],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rewrite_that_would_change_an_entry_is_stopped_and_leaves_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    real = ManifestWriter.write_parts

    def broken(self: ManifestWriter, content: Any, spec_id: int, entries: list[ManifestEntry], *rest: int, **others: Any) -> Any:
        return real(self, content, spec_id, FAULTS[fault](entries), *rest, **others)

    stopped(filled(lake), lambda: monkeypatch.setattr(ManifestWriter, "write_parts", broken))


def test_a_rewrite_of_entries_that_were_cut_wrongly_out_of_old_manifests_is_stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    real = written.CarriedFile

    def cut(*values: Any) -> Any:
        # The third entry has the last byte of the second one, so all bytes of the files are still there, in their order.
        file = real(*values)
        raws = {paths[1]: file.raw[:-1], paths[2]: b"\x00" + file.raw}
        return file._replace(raw=raws.get(file.file_path, file.raw))

    t = filled(lake)
    paths = [one.path for one in sorted(t.files(), key=lambda one: one.data_sequence_number)]
    stopped(t, lambda: monkeypatch.setattr(written, "CarriedFile", cut))


def test_a_rewrite_whose_manifests_storage_gives_back_otherwise_is_stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def other(content: bytes, codec: str) -> bytes:
        return packed(content.replace(b".parquet", b".parquez"), codec)

    t = filled(lake)
    stopped(t, lambda: monkeypatch.setattr(written, "packed", other), StorageUnavailable, "storage gives back something else")


def stopped(
    t: LakeTable,
    break_it: Callable[[], None],
    error: type[Exception] = TableRefused,
    said: str = "nothing was committed; please report it",
) -> None:
    t.delete_ids(0)
    head, files = t.table.refresh().metadata_location, metadata_files(t.lake)
    break_it()
    with pytest.raises(error, match=said):
        rewriter(t.lake).rewrite(t.identifier, "rewrite-1")
    assert (t.table.refresh().metadata_location, metadata_files(t.lake)) == (head, files)
    assert t.live_ids() == [1, 2, 3]


def test_a_rewrite_that_would_leave_out_a_manifest_is_stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    t = filled(lake)
    t.delete_ids(0)
    head, files = t.table.refresh().metadata_location, metadata_files(lake)
    real = module.decide_manifests

    def forgetful(*arguments: Any) -> Any:
        plan = real(*arguments)
        assert plan.kept
        return replace(plan, kept=())

    monkeypatch.setattr(module, "decide_manifests", forgetful)
    with pytest.raises(TableRefused, match="live files and rows"):
        rewriter(lake).rewrite(t.identifier, "rewrite-1")
    assert (t.table.refresh().metadata_location, metadata_files(lake)) == (head, files)
