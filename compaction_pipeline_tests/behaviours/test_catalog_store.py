from __future__ import annotations

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline_tests.behaviours.example_tasks import example
from compaction_pipeline_tests.builders import NOW, TABLE, data


def test_entries_come_back_sorted_by_name(stores: Stores) -> None:
    entries = [CatalogEntry("b", {"uri": "x", "note": "ü"}), CatalogEntry("B", {}), CatalogEntry("a", {}, observe=True)]
    for entry in entries:
        stores.catalogs.add(entry)
    assert [entry.name for entry in stores.catalogs.entries()] == ["B", "a", "b"]
    assert [stores.catalogs.entry(entry.name) for entry in entries] == entries


def test_a_name_is_registered_once(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {"a": "1"}))
    with pytest.raises(ConfigError, match="lake"):
        stores.catalogs.add(CatalogEntry("lake", {"a": "2"}))
    assert stores.catalogs.entry("lake").properties == {"a": "1"}


def test_a_replaced_catalog_keeps_what_is_known_of_its_tables(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {"note": "old"}))
    stores.catalogs.add(CatalogEntry("pond", {"note": "old"}))
    stores.index.add(TABLE)
    stores.catalogs.replace(CatalogEntry("lake", {"note": "new"}, observe=True))
    assert stores.catalogs.entries() == (CatalogEntry("lake", {"note": "new"}, observe=True), CatalogEntry("pond", {"note": "old"}))
    assert [state.table for state in stores.tables.states()] == [TABLE]


def test_an_unknown_catalog_cannot_be_replaced(stores: Stores) -> None:
    with pytest.raises(NotFoundError, match="pond"):
        stores.catalogs.replace(CatalogEntry("pond", {}))
    assert list(stores.catalogs.entries()) == []


def test_an_unknown_catalog_is_answered_with_the_known_ones(stores: Stores) -> None:
    stores.catalogs.add(CatalogEntry("lake", {}))
    for question in (stores.catalogs.entry, stores.catalogs.remove):
        with pytest.raises(NotFoundError, match=r"'pond' .*lake"):
            question("pond")


def test_removing_a_catalog_removes_the_state_of_its_tables(stores: Stores) -> None:
    other = TableIdentifier("lake2", ("shop",), "orders")
    for table in (TABLE, other):
        stores.catalogs.add(CatalogEntry(table.catalog, {}))
        stores.index.add(table)
        stores.files.apply(table, [], {"m": [data("f")]})
        stores.tasks.insert([example(f"t-{table.catalog}", table=table)], [], NOW)
    stores.catalogs.remove(TABLE.catalog)
    assert [entry.name for entry in stores.catalogs.entries()] == ["lake2"]
    assert [state.table for state in stores.tables.states()] == [other]
    assert stores.files.files(TABLE) == ()
    assert [task.table for task in stores.tasks.tasks()] == [other]
    assert len(stores.files.files(other)) == 1
