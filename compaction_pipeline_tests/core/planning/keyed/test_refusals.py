"""Which keyed tables are never compacted, and the sentence that says so."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.planning.keyed.refusals import (
    FlaggedSnapshot,
    refuse_lost_sequences,
    refuse_lowered_sequences,
    refuse_other_columns,
    refuse_other_optimizer,
    refuse_partitioning,
    refuse_promoted_keys,
)
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences
from compaction_pipeline.core.tables.keyed.partition_paths import PathField

_REGION, _YEAR = PathField("region", "identity", "string"), PathField("ts_year", "year", "int")
_OURS = {"compaction-pipeline.record-id": "r-1"}
_AMORO = {"snapshot.producer": "OPTIMIZE"}


def base(name: str) -> LiveFile:
    return LiveFile(f"wh/{name}.parquet", FileContent.DATA, 0, (), 10, 1, 1)


def flagged(number: int, eu: int | None, us: int | None = 4, **summary: str) -> FlaggedSnapshot:
    numbers = {(name,): value for name, value in (("eu", eu), ("us", us)) if value is not None}
    return FlaggedSnapshot(number, OptimizedSequences((_REGION,), numbers), summary)


def test_one_partition_spec_is_fine() -> None:
    refuse_partitioning("the base store", {0: [_REGION, PathField("ts_month", "month", "int")]})


def test_several_partition_specs_are_refused() -> None:
    with pytest.raises(
        TableRefused, match="the change store of a keyed table has the partition specs 0, 2: deletes are found by partition"
    ):
        refuse_partitioning("the change store", {2: [_REGION], 0: []})


def test_a_partition_by_year_is_refused() -> None:
    with pytest.raises(TableRefused, match=r"is partitioned by year \('ts_year'\), and Amoro reads the optimized sequences"):
        refuse_partitioning("the base store", {0: [_REGION, _YEAR]})


def test_keys_of_one_type_are_fine() -> None:
    refuse_promoted_keys({"id": ["long", "long"], "amount": ["decimal(9, 2)", "decimal(38,2)"]})


@pytest.mark.parametrize("types", [["int", "long"], ["float", "double"], ["decimal(9, 2)", "decimal(9, 3)"]])
def test_a_key_whose_type_has_changed_is_refused(types: list[str]) -> None:
    with pytest.raises(TableRefused, match=r"column 'id' of the primary key has had the types .* different hashes"):
        refuse_promoted_keys({"region": ["string"], "id": types})


def test_a_base_store_without_merged_changes_needs_no_sequences() -> None:
    files = [base("1-B-0-00000-0-1-00001"), base("part-0001")]
    refuse_lost_sequences(files, has_flagged_snapshot=False, legacy=None, parents_expired=False)


@pytest.mark.parametrize(("flag", "number"), [(True, None), (True, 6), (False, 7)])
def test_a_base_store_that_says_what_was_merged_is_fine(flag: bool, number: int | None) -> None:
    file = base("1-B-7-00000-0-1-00001")
    legacy = None if number is None else legacy_of(number)
    refuse_lost_sequences([file], has_flagged_snapshot=flag, legacy=legacy, parents_expired=True)


def test_a_property_of_old_versions_that_is_older_than_a_file_is_refused() -> None:
    with pytest.raises(TableRefused, match="changes of transaction 7, and the property of old versions has a lower number: which changes"):
        refuse_lost_sequences([base("1-B-7-00000-0-1-00001")], has_flagged_snapshot=False, legacy=legacy_of(6), parents_expired=False)


def legacy_of(number: int) -> OptimizedSequences:
    return OptimizedSequences((), {(): number})


def test_merged_changes_without_sequences_are_refused() -> None:
    with pytest.raises(TableRefused, match=r"its file wh/1-B-7-00000-0-1-00001\.parquet has changes of transaction 7: which changes"):
        refuse_lost_sequences([base("1-B-7-00000-0-1-00001")], has_flagged_snapshot=False, legacy=None, parents_expired=False)


def test_expired_ancestors_that_may_have_had_the_sequences_are_refused() -> None:
    with pytest.raises(TableRefused, match="older snapshots, which may have said so, are expired"):
        refuse_lost_sequences([], has_flagged_snapshot=False, legacy=None, parents_expired=True)


def test_a_column_id_that_means_two_columns_is_refused() -> None:
    refuse_other_columns({1: ("id", "long"), 2: ("a", "string")}, {1: ("id", "long"), 3: ("b", "string")})
    for other in (("b", "string"), ("a", "int")):
        with pytest.raises(TableRefused, match=r"column id 2 is 'a' \(string\) in the base store and"):
            refuse_other_columns({2: ("a", "string")}, {2: other})


def test_sequences_that_rise_or_stay_are_fine() -> None:
    refuse_lowered_sequences([flagged(3, 9), flagged(2, 7), flagged(1, None)])
    refuse_lowered_sequences([])


def test_a_sequence_that_became_lower_is_refused() -> None:
    with pytest.raises(
        TableRefused, match="snapshot 3 of the base store has the optimized sequence 6 for the partition 'region=eu'"
    ) as error:
        refuse_lowered_sequences([flagged(4, 8), flagged(3, 6), flagged(2, 7)])
    assert "Roll the table back to snapshot 2" in str(error.value)


def test_a_sequence_that_got_lost_is_refused() -> None:
    with pytest.raises(TableRefused, match="has the optimized sequence none for the partition 'region=eu', but snapshot 2 before it has 7"):
        refuse_lowered_sequences([flagged(3, None), flagged(2, 7)])


def test_an_insert_overwrite_may_lower_a_sequence_to_its_own_transaction() -> None:
    refuse_lowered_sequences([flagged(3, 6, txId="6"), flagged(2, 7)])
    with pytest.raises(TableRefused, match="has the optimized sequence 5"):
        refuse_lowered_sequences([flagged(3, 5, txId="6"), flagged(2, 7)])


@pytest.mark.parametrize("summaries", [[], [_OURS], [_OURS, _AMORO, _AMORO], [{**_OURS, **_AMORO}, _OURS], [{}, _OURS], [_AMORO]])
def test_a_table_that_comes_from_amoro_is_fine(summaries: list[Mapping[str, str]]) -> None:
    refuse_other_optimizer(list(enumerate(summaries)), "compaction-pipeline.record-id")


def test_two_optimizers_on_one_table_are_refused() -> None:
    with pytest.raises(TableRefused, match="snapshot 1 of the base store was committed by another optimizer") as error:
        refuse_other_optimizer(list(enumerate([_OURS, _AMORO, {}, _OURS, _AMORO])), "compaction-pipeline.record-id")
    assert "after snapshot 3 of this program" in str(error.value)
