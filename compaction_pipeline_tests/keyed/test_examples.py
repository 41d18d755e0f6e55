"""Keyed tables that Amoro wrote are recognised, and read to the rows of their change logs."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.expressions import EqualTo, GreaterThan

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import ConfigError, NotFoundError, TableRefused
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.table_scan import IcebergScan
from compaction_pipeline.keyed import KeyedTable
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows
from compaction_pipeline_tests.keyed.example import Example
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import Row, bag_difference
from compaction_pipeline_tests.scenarios.examples.unpacking import KEYED_EXAMPLES, catalog_properties


@pytest.fixture(scope="module", params=KEYED_EXAMPLES)
def example(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Example:
    """An example that no test changes."""
    return Example(request.param, tmp_path_factory.mktemp("example"))


def chosen(rows: list[Row], **values: object) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def test_a_table_of_amoro_is_read_to_its_rows(example: Example) -> None:
    table = example.table
    assert (table.name, table.primary_key) == ("examples.db.t", ("region", "id"))
    batches = list(table.scan().to_batches())
    assert bag_difference([row for batch in batches for row in batch.to_pylist()], example.expected) == ""


def test_a_scan_keeps_the_rows_and_the_columns_that_it_is_asked_for(example: Example) -> None:
    wanted = [{"name": row["name"], "id": row["id"]} for row in chosen(example.expected, region="l'été") if row["qty"] and row["qty"] > 40]
    rows = example.table.scan("region = 'l''été' and qty > 40", ["name", "id"]).to_arrow()
    assert wanted
    assert rows.column_names == ["name", "id"]
    assert bag_difference(rows.to_pylist(), wanted) == ""
    frame = example.table.scan(EqualTo("region", "l'été") & GreaterThan("qty", 40), ["name", "id"]).to_pandas()
    assert sorted(frame["id"]) == sorted(row["id"] for row in wanted)


def test_a_scan_without_rows_has_the_columns_of_the_table(example: Example) -> None:
    empty = example.table.scan("region = 'nowhere'").to_arrow()
    assert empty.num_rows == 0
    assert empty.column_names == list(example.expected[0])


def test_only_partitions_that_may_hold_rows_are_read(tmp_path: Path) -> None:
    example = Example("amoro_keyed_change_only", tmp_path)
    scan = example.table.scan("region = 'eu'")
    for path in (example.home / "wh").rglob("*.parquet"):
        if path.parent.name != "region=eu":
            path.unlink()
    assert bag_difference(scan.to_arrow().to_pylist(), chosen(example.expected, region="eu")) == ""


def test_an_unknown_column_is_named(example: Example) -> None:
    with pytest.raises(ConfigError, match="has no column 'price': its columns are id, region"):
        example.table.scan(selected_fields=["price"])


def test_a_change_store_alone_is_not_opened(example: Example) -> None:
    with pytest.raises(TableRefused, match=r"examples\.db\.t_change_ is the change store of a keyed table"):
        KeyedTable.open(example.catalog, "db.t_change_")


def test_a_base_store_whose_change_store_is_gone_is_not_read_alone(tmp_path: Path) -> None:
    example = Example("amoro_keyed_unpart", tmp_path)
    example.catalog.drop_table("db.t_change_")
    with pytest.raises(NotFoundError, match=r"the change store of table examples\.db\.t does not exist"):
        KeyedTable.open(example.catalog, "db.t")


def test_the_base_store_is_the_keyed_table_and_the_change_store_alone_is_refused(example: Example) -> None:
    scan = IcebergScan(Catalogs(lambda name: CatalogEntry(name, catalog_properties(example.home))))
    base, change = (scan.head(TableIdentifier("lake", ("db",), name)) for name in ("t", "t_change_"))
    assert base.refusal is None
    assert base.layout.keyed is not None
    assert change.layout.keyed is None
    assert "deleted rows would come back" in (change.refusal or "")


# `test_compacted_examples.py` compacts both examples by every type. The program around it differs by type, which the smaller one shows.
@pytest.mark.parametrize(
    ("name", "kind"), [("amoro_keyed_change_only", CompactionType.FULL), *(("amoro_keyed_unpart", kind) for kind in CompactionType)]
)
def test_the_program_compacts_a_table_of_amoro_and_leaves_its_rows(name: str, kind: CompactionType, tmp_path: Path) -> None:
    example = Example(name, tmp_path)
    services = OpenedServices(Settings(home=tmp_path / "home", merge_engine="in-process"))
    services.stores.catalogs.add(CatalogEntry("lake", catalog_properties(example.home)))
    done = services.compact_tables.compact(TableIdentifier("lake", ("db",), "t"), PlanRequest((kind,), force=True))
    assert [record.status for record in done.records] == [RecordStatus.COMMITTED], done.reason
    assert bag_difference(example.table.scan().to_arrow().to_pylist(), example.expected) == ""
    base, change = (example.catalog.load_table(f"db.{store}").metadata_location for store in ("t", "t_change_"))
    assert bag_difference(amoro_rows(base, change), example.expected) == "", "the reader of Amoro's rules"


def test_a_lost_statistics_file_refuses_the_read(tmp_path: Path) -> None:
    example = Example("amoro_keyed_unpart", tmp_path)
    [puffin] = example.home.rglob("*.puffin")
    puffin.write_bytes(puffin.read_bytes()[:-3])
    with pytest.raises(TableRefused, match=r"statistics file .*\.puffin cannot be read"):
        example.table.scan().to_arrow()
