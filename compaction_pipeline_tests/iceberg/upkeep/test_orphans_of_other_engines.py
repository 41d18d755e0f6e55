"""Tables that Spark, Flink and Amoro wrote: none of their files is an orphan, and what they would leave behind is known by its name."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.upkeep.file_names import is_of_iceberg
from compaction_pipeline.core.upkeep.orphan_rules import OrphanRules, OtherTable, Standing
from compaction_pipeline.core.upkeep.orphans import OrphanDecision, decide_orphans
from compaction_pipeline.core.upkeep.ports.files import FilesLook
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.upkeep.look_at_files import IcebergFilesLooker
from compaction_pipeline_tests.scenarios.examples.unpacking import KEYED_EXAMPLES, PLAIN_EXAMPLES, catalog_properties, unpack

LATER = datetime.now(timezone.utc) + timedelta(days=30)


class Example:
    """An unpacked example, and one look at it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.home = unpack(name, folder)
        properties = catalog_properties(self.home)
        looker = IcebergFilesLooker(Catalogs(lambda catalog: CatalogEntry(catalog, properties)))
        self.table = TableIdentifier("lake", ("db",), "t")
        self.look = lambda: looker.look(self.table)

    def decided(self, *others: OtherTable) -> OrphanDecision:
        found: FilesLook = self.look()
        rules = OrphanRules(found.stores, others=others, metadata=found.metadata, accept_share=1.0)
        return decide_orphans(found.listing, found.referenced, rules, LATER)


@pytest.mark.parametrize("name", [*PLAIN_EXAMPLES, *KEYED_EXAMPLES])
def test_every_file_of_another_engine_is_referenced_and_has_a_known_name(tmp_path: Path, name: str) -> None:
    decision = Example(name, tmp_path).decided()
    assert decision.refusals == ()
    assert {standing for standing, files in decision.files.items() if files} == {Standing.REFERENCED}
    names = {file.path.rsplit("/", 1)[-1] for file in decision.files[Standing.REFERENCED]}
    assert {one for one in names if not is_of_iceberg(one)} <= {"version-hint.text"}
    assert len(names) > 30


def test_a_table_that_imported_files_tells_where_they_lie_and_the_look_at_their_owner_is_refused(tmp_path: Path) -> None:
    example = Example("spark_v2_addfiles", tmp_path)
    roots = example.decided().foreign_roots
    assert roots == (f"file://{example.home}/plain",)
    # Somebody made a table of the folder from which Spark's add_files took the files.
    importing = OtherTable("lake.db.t", "file:///elsewhere", roots)
    owner = Example("flink_v2_unpart_cdc", tmp_path / "owner")
    assert owner.decided(importing).refusals == ()
    [location] = (store.location for store in owner.look().stores)
    [sentence] = owner.decided(OtherTable("lake.db.t", "file:///elsewhere", (f"{location}/data",))).refusals
    assert "lake.db.t" in sentence
