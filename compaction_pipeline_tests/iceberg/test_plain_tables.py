"""A Mixed-Iceberg table without a primary key is a plain table; whatever may be a base store is not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import ForbiddenError, ServerError
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile

from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import AccessDenied, StorageUnavailable, TableRefused
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable

WITHOUT_KEY = {"table-format": "MIXED_ICEBERG", "mixed-format.table-store": "base", "table.create-timestamp": "1790000000000"}


def fragmented(lake: Lake, properties: Mapping[str, str] | None = None, name: str = "t") -> LakeTable:
    table = lake.table(name, properties={**WITHOUT_KEY, **(properties or {})})
    table.ids(1, 2)
    table.ids(3)
    return table


def refused_in_both_places(table: LakeTable, words: str) -> None:
    """The table is refused when it is looked at, and when it is committed."""
    head = table.head()
    assert words in (head.refusal or ""), head.refusal
    with pytest.raises(TableRefused, match="is not compacted") as refusal:
        table.commit(table.merge())
    assert words in str(refusal.value)


def test_a_table_without_a_key_is_compacted_as_a_plain_one(lake: Lake) -> None:
    table = fragmented(lake)
    table.delete_ids(3)
    assert table.head().refusal is None
    # Once the metadata is known, the table counts as unmoved until its metadata moves.
    assert table.head().metadata_location == table.table.refresh().metadata_location
    assert table.commit(table.merge()).state is CommitState.COMMITTED
    assert table.live_ids() == [1, 2]
    assert len(table.files()) == 1


@pytest.mark.parametrize("name", ["t_change_", "t@change@", "T_Change_"])
def test_a_change_store_beside_it_refuses_it_until_it_is_gone(lake: Lake, name: str) -> None:
    table = fragmented(lake)
    lake.table(name)
    refused_in_both_places(table, f"the table {name!r} stands beside it")
    # Its metadata stays as it is when the neighbour goes, so it must not count as unmoved.
    assert table.head().metadata_location == ""
    lake.catalog.drop_table(("db", name))
    assert table.head().refusal is None


def test_a_change_store_that_appears_after_the_plan_stops_the_commit(lake: Lake) -> None:
    table = fragmented(lake)
    merge = table.merge()
    lake.table("t_change_")
    with pytest.raises(TableRefused, match="stands beside it"):
        table.commit(merge)
    assert len(table.files()) == 2


def test_a_neighbour_in_another_namespace_is_none(lake: Lake) -> None:
    table = fragmented(lake)
    lake.catalog.create_namespace("other")
    lake.catalog.create_table(("other", "t_change_"), table.table.schema())
    assert table.head().refusal is None


def test_the_flag_of_any_kept_snapshot_refuses_it(lake: Lake) -> None:
    table = fragmented(lake)
    table.table.refresh().append(table.table.scan().to_arrow(), snapshot_properties={"optimized-sequence.exist": "true"})
    flagged = table.head().snapshot_id
    table.ids(9)
    refused_in_both_places(table, f"its snapshot {flagged} says 'optimized-sequence.exist'")


def test_statistics_of_any_kept_snapshot_refuse_it(lake: Lake) -> None:
    table = fragmented(lake)
    snapshot = table.head().snapshot_id or 0
    blob = BlobMetadata.model_validate({"type": "optimized-sequence", "snapshot-id": snapshot, "sequence-number": 1, "fields": []})
    file = StatisticsFile.model_validate(
        {
            "snapshot-id": snapshot,
            "statistics-path": "/s.puffin",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [blob],
        }
    )
    with table.table.refresh().update_statistics() as update:
        update.set_statistics(file)
    table.ids(9)
    refused_in_both_places(table, f"the statistics file /s.puffin of its snapshot {snapshot}")


def test_numbers_of_old_versions_refuse_it_and_times_alone_do_not(lake: Lake) -> None:
    times = json.dumps({"": {"base-op-time": "1790000000000"}})
    assert fragmented(lake, {"table.partition-properties": times}).head().refusal is None
    numbers = json.dumps({"": {"max-txId": "12"}})
    refused_in_both_places(fragmented(lake, {"table.partition-properties": numbers}, "u"), "'table.partition-properties'")
    refused_in_both_places(fragmented(lake, {"base.table.max-transaction-id": "3"}, "v"), "'base.table.max-transaction-id'")
    with pytest.raises(TableRefused, match="cannot be read"):
        fragmented(lake, {"table.partition-properties": "[1"}, "w").head()


def answering(lake: Lake, answer: Any) -> None:
    def list_tables(namespace: object) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    # The catalog is this test's own.
    lake.catalog.list_tables = list_tables


@pytest.mark.parametrize("error", [ForbiddenError("no rights"), AccessDenied("no rights")])
def test_a_catalog_that_may_not_list_the_namespace_refuses_it(lake: Lake, error: Exception) -> None:
    table = fragmented(lake)
    answering(lake, error)
    refused_in_both_places(table, "the catalog does not tell whether a change store stands beside it")
    assert table.head().metadata_location == ""


@pytest.mark.parametrize("error", [ServerError("down"), OSError("no route"), NotImplementedError("cannot list")])
def test_a_catalog_that_does_not_answer_now_is_asked_again_later(lake: Lake, error: Exception) -> None:
    table = fragmented(lake)
    merge = table.merge()
    answering(lake, error)
    with pytest.raises(StorageUnavailable):
        table.head()
    with pytest.raises(StorageUnavailable):
        table.commit(merge)


def test_a_list_without_the_table_itself_proves_nothing(lake: Lake) -> None:
    table = fragmented(lake)
    answering(lake, [("db", "another")])
    refused_in_both_places(table, "the catalog does not list it in its namespace")


def test_a_plain_table_costs_no_look_beside_it(lake: Lake, tmp_path: Path) -> None:
    table = lake.table()
    table.ids(1)
    table.ids(2)
    answering(lake, AssertionError("nobody asks"))
    assert table.head().refusal is None
    assert table.commit(table.merge()).state is CommitState.COMMITTED
