"""What a refresh notes of a table's metadata, and when."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from compaction_pipeline.core.tables.figures import MetadataFigures
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.services.house import House
from compaction_pipeline_tests.services.upkeep.test_expiry_of_keyed_tables import TABLE as KEYED
from compaction_pipeline_tests.services.upkeep.test_expiry_of_keyed_tables import Expiring, row

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


def figures(house: House, table: LakeTable) -> MetadataFigures | None:
    house.services.refresh_files.refresh(table.identifier)
    overview = house.services.read_tables.table(table.identifier).overview
    assert (overview.metadata is None) == (overview.read_costs is None)
    return overview.metadata


def size_of(*stores: object) -> int:
    """The bytes of the metadata files."""
    return sum(Path(urlsplit(store.refresh().metadata_location).path).stat().st_size for store in stores)  # type: ignore[attr-defined]


def test_the_figures_are_those_of_the_metadata_file_and_of_the_manifests_that_may_have_files_of_a_partition(house: House) -> None:
    table = house.lake.table("t", spec=BY_NAME)
    assert figures(house, table) == MetadataFigures(0, size_of(table.table), 0, 0.0)
    for name in ("a", "b", "c", "c"):
        table.insert({"id": 1, "name": name}, partition=Record(name))
    found = figures(house, table)
    # A reader of a or b opens one manifest each, and a reader of c two.
    assert found == MetadataFigures(4, size_of(table.table), 4, (1 + 1 + 2) / 3)
    assert found.text.endswith("kB with 4 snapshots; a reader of one partition opens 1.3 of 4 manifests")


def test_an_unchanged_table_is_not_looked_at_for_them(house: House) -> None:
    table = house.fragmented(files=2)
    before = figures(house, table)
    house.services.scan.instead(metadata_figures=None, manifests=None)
    assert figures(house, table) == before


def test_snapshots_that_expire_leave_the_figures_and_no_manifest_list_is_read_for_that(house: House) -> None:
    table = house.fragmented(files=2)
    table.ids(100)
    before = figures(house, table)
    first = table.table.refresh().metadata.snapshots[0].snapshot_id
    table.table.maintenance.expire_snapshots().by_id(first).commit()
    house.services.scan.instead(manifests=None)
    assert before is not None
    assert figures(house, table) == MetadataFigures(1, size_of(table.table), before.manifests, before.manifests_opened)


def test_of_a_keyed_table_they_are_the_sums_over_both_stores(tmp_path: Path) -> None:
    keyed = Expiring(tmp_path)
    keyed.insert(row(1))
    keyed.insert(row(2))
    keyed.services.one_table.refresh(KEYED)
    snapshots = len(keyed.base.refresh().metadata.snapshots) + len(keyed.change.refresh().metadata.snapshots)
    found = keyed.services.read_tables.table(KEYED).overview.metadata
    assert found == MetadataFigures(snapshots, size_of(keyed.base, keyed.change))
    assert found.text.endswith("kB with 2 snapshots")
    keyed.services.close()
