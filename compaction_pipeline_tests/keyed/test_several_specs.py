"""Reads keyed tables whose partition spec has changed: deletes of one spec meet the rows of others, or the table is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline_tests.keyed.modelled import Modelled
from compaction_pipeline_tests.keyed.overwrites import Overwritten
from compaction_pipeline_tests.keyed.written import BY_REGION, row, whole
from compaction_pipeline_tests.reference_reader import Row, bag_difference

REGIONS = ("eu", "us", None)


class Evolving(Overwritten):
    """A keyed table partitioned by region, whose partition spec changes."""

    def __init__(self, folder: Path, key: tuple[str, ...] = ("id", "region"), upsert: bool = False) -> None:
        super().__init__(folder, key, BY_REGION, upsert=upsert)

    def evolve(self, name: str) -> None:
        for store in self.stores():
            with store.update_spec() as update:
                _evolve(update, name)

    def found(self) -> list[Row]:
        rows: list[Row] = self.table.scan().to_arrow().to_pylist()
        return rows

    def read(self, *expected: Row) -> None:
        """The product finds exactly these rows. Amoro's rules say nothing about several specs."""
        assert bag_difference(self.found(), [whole(each) for each in expected]) == ""


def _evolve(update: UpdateSpec, name: str) -> None:
    if name == "drop":
        update.remove_field("region")
    elif name == "region":
        update.add_field("region", IdentityTransform(), "region")
    else:
        update.add_field("id", BucketTransform(int(name)), f"b{name}")


@pytest.fixture
def table(tmp_path: Path) -> Evolving:
    return Evolving(tmp_path)


def test_a_number_of_an_old_spec_counts_for_its_own_partition_only(table: Evolving) -> None:
    table.insert(row(1, "a", "eu"))
    table.compactions.compact()
    assert table.sequences() == {("eu",): 1}
    table.write(("DELETE", row(1, None, "eu")), ("INSERT", row(2, "b", "eu")), ("INSERT", row(1, "a", "us")))
    # All partitions of the new spec have one path, the empty one. The number of eu is not that of all.
    table.evolve("drop")
    table.read(row(2, "b", "eu"), row(1, "a", "us"))


def test_merged_changes_of_a_table_that_got_partitions_do_not_appear_twice(tmp_path: Path) -> None:
    table = Overwritten(tmp_path)
    table.insert(row(1, "a", "eu"))
    table.compactions.compact()
    for store in table.stores():
        with store.update_spec() as update:
            _evolve(update, "region")
    assert bag_difference(table.table.scan().to_arrow().to_pylist(), [whole(row(1, "a", "eu"))]) == ""


def test_deletes_of_one_spec_meet_the_rows_of_others(table: Evolving) -> None:
    table.insert(*(row(number, "base", region) for number in range(8) for region in REGIONS))
    table.compactions.compact(CompactionType.FULL)
    table.insert(row(8, "change", "eu"), row(9, "change", "eu"))
    table.evolve("4")
    table.write(*(("DELETE", row(number, None, "eu")) for number in (0, 3, 8)), ("DELETE", row(1, None, None)))
    table.write(("UPDATE_BEFORE", row(5, "base", "us")), ("UPDATE_AFTER", row(5, "new", "us")))
    dead = {(0, "eu"), (3, "eu"), (1, None), (5, "us")}
    rows = [row(number, "base", region) for number in range(8) for region in REGIONS if (number, region) not in dead]
    table.read(*rows, row(9, "change", "eu"), row(5, "new", "us"))
    table.evolve("drop")
    table.write(("DELETE", row(9, None, "eu")), ("DELETE", row(5, None, "us")), ("INSERT", row(9, "last", "us")))
    table.read(*rows, row(9, "last", "us"))
    kept = table.table.scan("region = 'us' and id > 5", ["id", "v"]).to_arrow().to_pylist()
    assert bag_difference(kept, [{"id": 6, "v": "base"}, {"id": 7, "v": "base"}, {"id": 9, "v": "last"}]) == ""
    for write in (lambda: table.compactions.plan(), lambda: table.overwrite(row(1))):
        with pytest.raises(TableRefused, match="has the partition specs 0, 1, 2"):
            write()


def test_a_delete_whose_row_it_is_unknown_is_refused(tmp_path: Path) -> None:
    # The region is not in the key, so rows of one key in two regions are two rows.
    table = Evolving(tmp_path, key=("id",))
    table.insert(row(1, "a", "eu"), row(1, "a", "us"))
    table.compactions.compact()
    table.evolve("drop")
    table.insert(row(2, "b", "eu"))
    table.read(row(1, "a", "eu"), row(1, "a", "us"), row(2, "b", "eu"))
    table.write(("DELETE", row(1, None, "eu")))
    with pytest.raises(
        TableRefused, match=r"has another partition spec than .*-B-1-.* are not all in the primary key: it is unknown which"
    ):
        table.found()


def test_a_delete_that_is_not_above_the_number_of_the_other_partition_is_refused(table: Evolving) -> None:
    table.insert(row(1, "a", "eu"), row(2, "b", "us"))
    table.compactions.compact()
    table.evolve("4")
    table.write(("DELETE", row(1, None, "eu")))
    table.read(row(2, "b", "us"))
    # Another program moves the number of a partition of the old spec to that of the delete.
    statistics = table.stores()[0].metadata.statistics[-1].statistics_path.removeprefix("file://")
    content = Path(statistics).read_bytes()
    assert content.count(b'"region=eu":1,') == 1
    Path(statistics).write_bytes(content.replace(b'"region=eu":1,', b'"region=eu":2,'))
    with pytest.raises(TableRefused, match="changes up to 2 of that partition are in the base store already"):
        table.found()


def test_equality_deletes_beside_several_specs_are_refused(table: Evolving) -> None:
    table.insert(row(1, "a", "eu"))
    table.evolve("drop")
    keys = pa.table({"id": pa.array([1], pa.int64())})
    base = table.stores()[0]
    delete = write_parquet_file(base, keys, content=FileContent.EQUALITY_DELETES, equality_ids=[1], name="eq")
    row_delta(base, equality_deletes=[(delete, [1])])
    with pytest.raises(TableRefused, match="holds equality deletes, and live files have the partition specs 0, 1"):
        table.found()


def test_a_spec_that_the_base_store_lacks_is_refused(table: Evolving) -> None:
    with table.stores()[1].update_spec() as update:
        _evolve(update, "4")
    table.insert(row(1, "a", "eu"))
    with pytest.raises(TableRefused, match="live files of partition spec 1, which its base store lacks"):
        table.found()


def test_whatever_the_spec_was_the_scan_equals_a_dictionary(tmp_path: Path) -> None:
    for seed in range(6):
        table = Evolving(tmp_path / str(seed), upsert=True)
        model = Modelled(table, table.compactions, random.Random(seed))
        evolutions = iter(["2", "drop", "4", "region"])
        for step in range(14):
            if step % 4 == 3:
                if step == 3:
                    table.compactions.compact(model.random.choice([CompactionType.MAJOR, CompactionType.FULL]))
                table.evolve(next(evolutions, "8"))
            model.write()
            table.read(*model.rows.values())
