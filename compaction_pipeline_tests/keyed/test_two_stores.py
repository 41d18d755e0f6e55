"""The two stores of a keyed table belong together: a change store that was made anew is refused, and a batch lands in one store only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.iceberg.keyed.change_plan import read_keyed_files
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline_tests.keyed.compacted import Compacted
from compaction_pipeline_tests.keyed.overwrites import Overwritten, table_of
from compaction_pipeline_tests.keyed.written import row
from compaction_pipeline_tests.keyed.written import table_of as changes_of


@pytest.fixture
def keyed(tmp_path: Path) -> Overwritten:
    return Overwritten(tmp_path)


def make_change_store_anew(keyed: Overwritten) -> None:
    old = keyed.stores()[1]
    keyed.catalog.drop_table("db.t_change_")
    keyed.catalog.create_table("db.t_change_", old.schema(), partition_spec=old.spec(), properties=old.properties)


# ---- a change store that was made anew


@pytest.mark.parametrize("merged", ["by a compaction", "by an overwrite"])
def test_a_change_store_made_anew_is_refused_everywhere(keyed: Overwritten, tmp_path: Path, merged: str) -> None:
    keyed.insert(row(1))
    keyed.insert(row(2))
    if merged == "by a compaction":
        keyed.compactions.compact()
    else:
        assert keyed.overwrite(row(1), row(2)) == 3
    number = keyed.sequences()[()]
    make_change_store_anew(keyed)

    def written() -> int:
        return len(list(tmp_path.glob("wh/**/*.parquet")))

    before = written()
    for act in (
        lambda: keyed.insert(row(3)),
        lambda: keyed.overwrite(row(3)),
        lambda: keyed.table.scan().to_arrow(),
        lambda: read_keyed_files(load_stores(keyed.catalog, ("db", "t"))),
    ):
        with pytest.raises(TableRefused, match=rf"changes up to {number} are in its base store, but its change store has given the number"):
            act()
    assert written() == before
    assert keyed.stores()[1].metadata.snapshots == []


def test_changes_that_are_merged_while_the_stores_are_loaded_are_no_new_change_store(keyed: Overwritten) -> None:
    keyed.insert(row(1))
    before = load_stores(keyed.catalog, ("db", "t"))
    keyed.insert(row(2))
    assert keyed.compactions.compact() is not None
    stores = replace(before, base=keyed.stores()[0])
    assert stores.sequences().highest == 2 > before.change.metadata.next_sequence_number() - 1
    assert [len(node.base) for node in stores.nodes(lambda file: True)] == [1] * len(keyed.base_paths())


def test_a_change_store_made_anew_before_any_merge_is_read(keyed: Overwritten) -> None:
    keyed.insert(row(1))
    make_change_store_anew(keyed)
    keyed.insert(row(2))
    keyed.check([row(2)])


def test_numbers_of_old_versions_above_those_of_the_change_store_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    log = Compacted(tmp_path)
    with log.base.refresh().transaction() as base:
        base.set_properties({"table.partition-properties": '{"":{"max-txId":"9"}}'})
    log.check([])
    table = KeyedTable.open(log.catalog, "db.t")
    changes, rows = changes_of([("INSERT", row(1))], log.base.schema()), table_of([row(1)], log.base.schema())
    for act in (lambda: table.write_changes(changes), lambda: table.insert_overwrite(rows)):
        with pytest.raises(TableRefused, match="changes up to 9 are in its base store, but its change store has given the number"):
            act()
    with pytest.raises(TableRefused, match="changes up to 9 are in its base store"):
        log.compactions.plan()
    log.check([])


# ---- a batch


def test_a_batch_of_changes_sees_that_an_overwrite_landed_it_meanwhile(keyed: Overwritten) -> None:
    location = Path(keyed.stores()[1].location().removeprefix("file://"))

    def once_written() -> None:
        if list(location.glob("data/**/*.parquet")):
            keyed.catalog.before_load = None
            assert keyed.overwrite(row(1, "overwritten"), sink_id="a", batch=1) == 1

    keyed.catalog.before_load = once_written
    assert keyed.insert(row(1, "changed"), sink_id="a", batch=1) is None
    keyed.check([row(1, "overwritten")])
    assert keyed.catalog.before_load is None
    assert not list(location.glob("data/**/*.parquet")), "the files of the batch are gone"
