"""What a listed file is, and when a whole look is refused: one example for each rule, and each trap by its name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import pytest

from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile, MetadataState, OtherTable, OwnStore, Standing, minimum_age
from compaction_pipeline.core.upkeep.orphans import Total, confirmed, decide_orphans
from compaction_pipeline.core.upkeep.paths import ToldStores
from compaction_pipeline.core.upkeep.retention import Retention
from compaction_pipeline_tests.core.upkeep.listings import (
    DAY,
    HOUR,
    LIVE,
    LOCATION,
    NOW,
    STATE,
    STORE,
    TASK,
    decided,
    listed,
    name,
    path,
    rules,
    standing,
)

UUID = "ce13f4d2-9c1c-4d51-9f0a-2d3f6c1f7a55"
OTHER_UUID = "11111111-2222-3333-4444-555555555555"


def refused(files: Iterable[ListedFile] = (), referenced: Iterable[str] = (), **changes: object) -> str:
    """The one refusal of a look. It must keep every file."""
    decision = decided([*files, listed(path(1))], referenced, rules(**changes))
    assert decision.orphans.files == ()
    [sentence] = decision.refusals
    return sentence


def test_an_old_file_that_nothing_reaches_is_an_orphan() -> None:
    decision = decided([listed(path(1), size=5), listed(path(2), size=7)], [path(2)])
    assert decision.refusals == ()
    assert decision.orphans.files == (listed(path(1), size=5),)
    assert decision.orphans.listed_at == NOW
    assert decision.totals[Standing.ORPHAN] == Total(1, 5)
    assert decision.totals[Standing.REFERENCED] == Total(2, 7 + LIVE.size_bytes)


def test_a_file_is_too_young_for_three_days_and_never_less_than_one() -> None:
    files = [listed(path(1), 2.9), listed(path(2), 3), listed(path(3), -1)]
    decision = decided(files)
    assert [standing(path(one), decision) for one in (1, 2, 3)] == [Standing.YOUNG, Standing.ORPHAN, Standing.YOUNG]
    eager = decided([listed(path(1), 0.9), listed(path(2), 1)], (), rules(minimum_age=HOUR))
    assert [standing(path(one), eager) for one in (1, 2)] == [Standing.YOUNG, Standing.ORPHAN]


def history(**summary: str) -> History:
    return History({1: Snapshot(1, None, NOW - 90 * DAY, {"operation": "append", **summary})}, {MAIN: Ref(MAIN, 1, True)})


def test_tables_of_streaming_writers_keep_files_for_a_week() -> None:
    assert minimum_age(history(), Retention()) == 3 * DAY
    assert minimum_age(history(), Retention(orphan_age=HOUR)) == DAY
    assert minimum_age(history(), Retention(orphan_age=30 * DAY)) == 30 * DAY
    flink = history(**{"flink.job-id": "j", "flink.operator-id": "o"})
    connect = history(**{"kafka.connect.offsets.control.group": "{}"})
    own = history(**{"my-etl.job": "nightly"})
    assert minimum_age(flink, Retention(orphan_age=HOUR)) == minimum_age(connect, Retention()) == 7 * DAY
    assert minimum_age(own, Retention()) == 3 * DAY
    assert minimum_age(own, Retention(writer_keys=("my-etl.job",))) == 7 * DAY
    assert minimum_age(flink, Retention(writer_retention=10 * DAY)) == 10 * DAY
    assert minimum_age(flink, Retention(writer_retention=DAY)) == 7 * DAY


def test_a_clock_an_hour_off_makes_no_young_file_an_orphan() -> None:
    """The clock of this host may be ahead. The least age is a day, so that a write of a few hours is still young."""
    written = listed(path(1), 20 / 24)
    for ahead in (-HOUR, HOUR):
        decision = decided([written], (), rules(minimum_age=timedelta(0)), NOW + ahead)
        assert standing(path(1), decision) is Standing.YOUNG


def test_copied_objects_with_old_times_are_not_deleted_when_an_import_names_them_meanwhile() -> None:
    """A copy may keep the time of its original, so an import that is under way looks old. The second look sees it referenced."""
    copied = listed(path(1), 400)
    first = decided([copied])
    assert first.orphans.files == (copied,)
    second = decided([copied], [path(1)], now=NOW + DAY)
    assert confirmed(first.orphans, second.orphans) == ()
    too_soon = decided([copied], now=NOW + DAY - HOUR)
    assert too_soon.orphans.files == (copied,)
    assert confirmed(first.orphans, too_soon.orphans) == ()


def test_files_of_open_tasks_and_records_are_ours() -> None:
    ours = [f"{LOCATION}/data/ba9876543210-{TASK}-deadbeef-00001.parquet", f"{LOCATION}/metadata/snap-1-0-0123456789ab.avro"]
    decision = decided([listed(one) for one in ours], (), rules(ids=frozenset({TASK, "0123456789ab"})))
    assert [standing(one, decision) for one in ours] == [Standing.OURS, Standing.OURS]
    assert decided([listed(one) for one in ours]).totals[Standing.ORPHAN].files == 2


def test_leftovers_of_a_killed_merging_sink_are_candidates_as_any_other() -> None:
    """No store knows the task of a sink, so its age and the two looks decide."""
    left = f"{LOCATION}/data/a1-sink-0123456789abcdef-deadbeef-00001.parquet"
    assert standing(left, decided([listed(left, 1)])) is Standing.YOUNG
    first, second = decided([listed(left)]), decided([listed(left)], now=NOW + DAY)
    assert [file.path for file in confirmed(first.orphans, second.orphans)] == [left]
    assert standing(left, decided([listed(left)], [left])) is Standing.REFERENCED


def test_a_referenced_file_is_referenced_whatever_its_name_or_age() -> None:
    imported = f"{LOCATION}/_old/000000_0"
    assert standing(imported, decided([listed(imported, -1)], [imported])) is Standing.REFERENCED


def test_s3_against_s3a_is_one_store() -> None:
    decision = decided([listed(path(1))], [path(1).replace("s3://", "s3a://")])
    assert decision.refusals == ()
    assert standing(path(1), decision) is Standing.REFERENCED


def test_s3_against_oss_is_a_mismatch_that_refuses_until_somebody_tells() -> None:
    named = path(1).replace("s3://", "oss://")
    decision = decided([listed(path(1))], [named])
    assert standing(path(1), decision) is Standing.MISMATCH
    [sentence] = decision.refusals
    assert path(1) in sentence
    assert named in sentence
    assert "tell whether the two stores are one or two" in sentence
    equal = decided([listed(path(1))], [named], rules(told=ToldStores.of(equal=[("s3://b", "oss://b")])))
    assert standing(path(1), equal) is Standing.REFERENCED
    different = decided([listed(path(1))], [named], rules(told=ToldStores.of(different=[("s3://b", "oss://b")])))
    assert different.orphans.files == (listed(path(1)),)


def test_a_file_that_is_listed_under_two_names_of_its_store_is_referenced_under_both() -> None:
    twice = [listed(path(1)), listed(path(1).replace("s3://", "s3a://"))]
    store = OwnStore(LOCATION.replace("s3://", "s3a://"), STATE)
    decision = decided(twice, [path(1)], rules(stores=(STORE, store)))
    assert decision.totals[Standing.REFERENCED].files == 3


def test_a_file_that_is_listed_twice_counts_once_and_as_its_younger_self() -> None:
    decision = decided([listed(path(1), 1), listed(path(1), 10)])
    assert standing(path(1), decision) is Standing.YOUNG
    assert decided([listed(path(1)), listed(path(1))], [path(1)]).totals[Standing.REFERENCED].files == 2


def test_a_copy_of_a_referenced_file_is_strange() -> None:
    copy = path(1, "backup/data")
    decision = decided([listed(copy), listed(path(1))], [path(1)])
    assert standing(copy, decision) is Standing.STRANGE
    assert path(1) in decision.reasons[copy]
    outside = decided([listed(path(1))], [f"s3://b/elsewhere/{name(1)}"])
    assert standing(path(1), outside) is Standing.STRANGE


def test_data_files_of_a_hive_table_below_the_same_prefix_are_strange() -> None:
    hive = [f"{LOCATION}/hive/dt=1/000000_0", f"{LOCATION}/hive/dt=1/part-00000-{UUID}.c000.snappy.parquet"]
    decision = decided([listed(one) for one in hive])
    assert [standing(one, decision) for one in hive] == [Standing.STRANGE] * 2
    assert "lie in each other" in refused(others=(OtherTable("hive.default.h", f"{LOCATION}/hive"),))


def test_hidden_folders_are_other_programs_unless_they_are_partitions() -> None:
    hidden = path(1, "data/_day=1")
    assert standing(hidden, decided([listed(hidden)])) is Standing.STRANGE
    partitioned = OwnStore(LOCATION, STATE, partition_fields=frozenset({"_day"}))
    assert standing(hidden, decided([listed(hidden)], (), rules(stores=(partitioned,)))) is Standing.ORPHAN
    # What is hidden in the location itself says nothing.
    below = OwnStore("s3://b/_wh/t", STATE)
    file = f"s3://b/_wh/t/data/{name(1)}"
    assert standing(file, decided([listed(file)], (), rules(stores=(STORE, below)))) is Standing.ORPHAN


def test_t_and_t2_are_two_locations() -> None:
    beside = OtherTable("lake.db.t2", "s3://b/wh/t2", roots=("s3://b/wh/t2/data",))
    decision = decided([listed(path(1)), listed("s3://b/wh/t2/data/" + name(2))], (), rules(others=(beside,)))
    assert decision.refusals == ()
    assert decision.orphans.files == (listed(path(1)),)
    assert standing("s3://b/wh/t2/data/" + name(2), decision) is Standing.STRANGE


@pytest.mark.parametrize("location", ["s3://b/wh/t", "s3a://b/wh/t/", "s3://b/wh", "s3://b/wh/t/inner", "s3://b"])
def test_a_location_that_holds_another_table_or_lies_in_one_is_refused(location: str) -> None:
    sentence = refused(others=(OtherTable("lake.db.other", location),))
    assert "lake.db.other" in sentence
    assert location in sentence
    assert LOCATION in sentence


@pytest.mark.parametrize("location", ["", "/", "s3://b", "s3://b/", "s3:///wh/t", "file:///", "hdfs://nn/", "wh/t"])
def test_the_root_of_a_store_is_refused(location: str) -> None:
    assert "the root of a store" in refused(stores=(OwnStore(location, STATE),))
    assert "the root of a store" in refused(roots=(location,))


@pytest.mark.parametrize("location", ["/wh/t", "file:///wh/t", "hdfs:///wh/t", "abfs://c@a.dfs.core.windows.net/t"])
def test_a_folder_of_any_store_is_not_refused(location: str) -> None:
    assert decided([], (), rules(stores=(OwnStore(location, STATE),))).refusals == ()


def test_gc_enabled_false_is_refused() -> None:
    assert "'gc.enabled' is false" in refused(stores=(OwnStore(LOCATION, STATE, gc_enabled=False),))


def test_a_table_without_uuid_is_refused() -> None:
    assert "names no uuid" in refused(stores=(OwnStore(LOCATION, MetadataState(None, 0, NOW)),))


def test_a_store_of_a_keyed_table_that_is_refused_refuses_the_whole_table() -> None:
    change = OwnStore("s3://b/wh/t_change_", STATE, gc_enabled=False)
    assert "t_change_" in refused(stores=(STORE, change))


def test_an_imported_table_that_names_files_in_anothers_location_keeps_them_in_both_orders() -> None:
    importing = OtherTable("lake.db.copy", "s3://b/wh/copy", roots=(f"{LOCATION}/data",))
    sentence = refused([listed(path(2))], others=(importing,))
    assert "lake.db.copy" in sentence
    assert f"{LOCATION}/data" in sentence
    # With its paths among the referenced ones nothing of it is lost, and the rest is found.
    joined = OtherTable("lake.db.copy", "s3://b/wh/copy", roots=(f"{LOCATION}/data",), joined=True)
    decision = decided([listed(path(1)), listed(path(2))], [path(2)], rules(others=(joined,)))
    assert (decision.refusals, decision.orphans.files) == ((), (listed(path(1)),))
    # The other order: the importing table is looked at. Only its own location is listed, and the imported files lie elsewhere.
    own = f"s3://b/wh/copy/data/{name(7)}"
    copy = rules(stores=(OwnStore("s3://b/wh/copy", STATE),), others=(OtherTable("lake.db.t", LOCATION),))
    reverse = decide_orphans([listed(own), listed(path(8, "data").replace("/t/", "/copy/"), size=100)], [path(2), own], copy, NOW)
    assert standing(own, reverse) is Standing.REFERENCED


def test_a_foreign_root_above_the_location_refuses_too() -> None:
    assert "s3://b/wh" in refused(others=(OtherTable("lake.db.copy", "s3://c/copy", roots=("s3://b/wh",)),))


@pytest.mark.parametrize(
    ("kind", "below"),
    [
        ("Delta", ("x/_delta_log/00000000000000000000.json",)),
        ("Delta", ("_delta_log/_last_checkpoint",)),
        ("Hudi", (".hoodie/hoodie.properties",)),
        ("Paimon", ("p/snapshot/snapshot-1", "p/schema/schema-0")),
    ],
)
def test_a_table_of_another_format_below_the_location_is_refused(kind: str, below: tuple[str, ...]) -> None:
    assert f"of a {kind} table" in refused([listed(f"{LOCATION}/{one}") for one in below])


@pytest.mark.parametrize("below", [("snapshot/snapshot-1",), ("schema/schema-0",), ("p/snapshot/snapshot-1", "q/schema/schema-0")])
def test_half_a_paimon_table_is_none(below: tuple[str, ...]) -> None:
    assert decided([listed(f"{LOCATION}/{one}") for one in below]).refusals == ()


@pytest.mark.parametrize("below", ["_delta_log", "_delta_log_old/x.json", "data/.hoodie.crc"])
def test_a_name_that_only_begins_like_a_marker_is_none(below: str) -> None:
    assert decided([listed(f"{LOCATION}/{below}")]).refusals == ()


METADATA = f"{LOCATION}/inner/metadata/00001-{UUID}.metadata.json"


def test_metadata_of_another_table_below_the_location_is_refused() -> None:
    other = MetadataState(OTHER_UUID, 1, NOW - 20 * DAY)
    assert OTHER_UUID in refused([listed(METADATA)], metadata={METADATA: other})
    assert OTHER_UUID in refused([listed(METADATA, 0)], metadata={METADATA: other})
    assert "names no uuid" in refused([listed(METADATA)], metadata={METADATA: MetadataState(None, 0, NOW)})
    assert "was not read" in refused([listed(METADATA)])


def test_metadata_of_this_table_that_nothing_names_is_never_garbage() -> None:
    lost = MetadataState(STATE.uuid, STATE.last_sequence_number, STATE.updated_at)
    decision = decided([listed(METADATA)], (), rules(metadata={METADATA: lost}))
    assert (decision.refusals, standing(METADATA, decision)) == ((), Standing.STRANGE)
    named = decided([listed(METADATA)], [METADATA], rules(metadata={METADATA: MetadataState(OTHER_UUID, 1, NOW)}))
    assert (named.refusals, standing(METADATA, named)) == ((), Standing.REFERENCED)


@pytest.mark.parametrize(
    "newer", [MetadataState(STATE.uuid, 8, STATE.updated_at), MetadataState(STATE.uuid, 7, STATE.updated_at + timedelta(seconds=1))]
)
def test_a_pointer_that_was_set_back_is_refused(newer: MetadataState) -> None:
    assert "is newer than the metadata that the catalog names" in refused([listed(METADATA)], metadata={METADATA: newer})
    # A commit that is under way, or lost its race a moment ago, has written newer metadata too.
    young = decided([listed(METADATA, 2)], (), rules(metadata={METADATA: newer}))
    assert young.refusals == ()


def test_more_than_a_fifth_of_the_listed_bytes_is_listed_and_said_to_be_too_much() -> None:
    files = [listed(path(1), size=201), listed(path(2), size=799)]
    decision = decide_orphans(files, [path(2)], rules(), NOW)
    assert "201 B of the 1.0 kB that were listed look unreferenced, which is more than 20%" in str(decision.excess)
    assert (decision.refusals, decision.orphans.files) == ((), (files[0],))
    assert decision.totals[Standing.ORPHAN] == Total(1, 201)
    assert decide_orphans(files, [path(2)], rules(accept_share=0.3), NOW).excess is None
    fifth = [listed(path(1), size=200), listed(path(2), size=800)]
    assert decide_orphans(fifth, [path(2)], rules(), NOW).excess is None


def test_a_refused_look_confirms_nothing() -> None:
    first = decided([listed(path(1))], (), rules(stores=(OwnStore(LOCATION, STATE, gc_enabled=False),)))
    assert first.files[Standing.ORPHAN] == (listed(path(1)),)
    assert confirmed(first.orphans, decided([listed(path(1))], now=NOW + DAY).orphans) == ()
