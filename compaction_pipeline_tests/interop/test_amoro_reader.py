"""The reader of Amoro's rules finds the rows of tables that Amoro's own writers and optimizer made."""

from __future__ import annotations

from pathlib import Path

import pytest

from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline_tests.interop.amoro_reader import amoro_rows, optimized_sequences
from compaction_pipeline_tests.reference_reader import Row, bag_difference, metadata_of, reference_rows
from compaction_pipeline_tests.scenarios.examples.unpacking import CATALOG_NAME, KEYED_EXAMPLES, catalog_properties, expected_rows, unpack

_ROWS = {"amoro_keyed_change_only": 1077, "amoro_keyed_unpart": 2234}


class Stores:
    """The metadata files of an unpacked example's two stores."""

    def __init__(self, name: str, folder: Path) -> None:
        self.home = unpack(name, folder)
        catalog = SqlCatalog(CATALOG_NAME, **catalog_properties(self.home))
        self.base, self.change = (catalog.load_table(f"db.{store}").metadata_location for store in ("t", "t_change_"))

    def rows(self) -> list[Row]:
        return amoro_rows(self.base, self.change)


@pytest.mark.parametrize("name", KEYED_EXAMPLES)
def test_tables_that_amoro_wrote_have_the_rows_of_their_change_logs(name: str, tmp_path: Path) -> None:
    stores = Stores(name, tmp_path)
    rows = stores.rows()
    assert bag_difference(rows, expected_rows(stores.home)) == ""
    assert len(rows) == _ROWS[name]


def test_neither_store_alone_has_the_rows(tmp_path: Path) -> None:
    stores = Stores("amoro_keyed_unpart", tmp_path)
    for store in (stores.base, stores.change):
        assert bag_difference(reference_rows(store), expected_rows(stores.home)) != ""


def test_the_optimized_sequence_decides_which_changes_count(tmp_path: Path) -> None:
    stores = Stores("amoro_keyed_unpart", tmp_path)
    assert optimized_sequences(metadata_of(stores.base)) == {(): 10}
    [puffin] = stores.home.rglob("*.puffin")
    # Without the sequence, changes that are in the base store already come back from the change store.
    puffin.write_bytes(puffin.read_bytes().replace(b'{"":10}', b'{"": 0}'))
    assert optimized_sequences(metadata_of(stores.base)) == {(): 0}
    assert len(stores.rows()) > _ROWS["amoro_keyed_unpart"]
