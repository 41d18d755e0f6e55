from __future__ import annotations

from collections.abc import Mapping

import pytest

from compaction_pipeline.core.tables.same_catalog import same_catalog
from compaction_pipeline.core.tables.table import CatalogEntry

Properties = Mapping[str, str]


def sql(uri: str, **more: str) -> Properties:
    return {"type": "sql", "uri": uri, "catalog-name": "lake", **more}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (sql("sqlite:////data/catalog.db"), sql("sqlite:////data//x/../catalog.db?timeout=5")),
        (sql("sqlite:////data/catalog.db"), sql("sqlite+pysqlite:////data/catalog.db", warehouse="file:///elsewhere")),
        (sql("sqlite:////data/catalog.db"), {"uri": "sqlite:////data/catalog.db", "catalog-name": "lake"}),
        (sql("postgresql://me:pw@DB.example.com/c"), sql("postgresql+psycopg2://you:other@db.example.com:5432/c?sslmode=require")),
        (sql("postgres://db/c"), sql("postgresql:///c?host=db")),
        ({"type": "rest", "uri": "https://Catalog.example.com/iceberg/"}, {"uri": "HTTPS://catalog.example.com:443/iceberg"}),
        ({"uri": "http://c", "warehouse": "s3://w/"}, {"uri": "http://c:80/", "warehouse": "s3://w", "token": "x"}),
        ({"uri": "thrift://a:9083,thrift://B"}, {"type": "hive", "uri": "thrift://b:9083,thrift://a", "warehouse": "x"}),
        ({"type": "glue", "glue.region": "eu-west-1"}, {"type": "glue", "client.region": "eu-west-1", "s3.region": "x"}),
    ],
)
def test_one_place_is_found_under_two_texts(one: Properties, other: Properties) -> None:
    found = same_catalog(CatalogEntry("second", other), [CatalogEntry("first", one)])
    assert found is not None
    assert found[0].name == "first"
    assert all(secret not in found[1] for secret in ("pw", "other", "token"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (sql("sqlite:////data/catalog.db"), sql("sqlite:////data/other.db")),
        (sql("postgresql://db/c"), sql("postgresql://db/c", **{"catalog-name": "flink"})),
        (sql("postgresql://db/c"), sql("postgresql://db:5433/c")),
        # Without a property, a SQL catalog has the name that it is registered by.
        ({"type": "sql", "uri": "postgresql://db/c"}, {"type": "sql", "uri": "postgresql://db/c"}),
        ({"uri": "http://c", "warehouse": "a"}, {"uri": "http://c", "warehouse": "b"}),
        ({"uri": "http://c/a"}, {"uri": "http://c/b"}),
        ({"type": "glue", "glue.id": "1"}, {"type": "glue", "glue.id": "2"}),
        # The rest may stand in a file of PyIceberg.
        ({}, {}),
        ({"type": "sql", "uri": "sqlite:///:memory:"}, {"type": "sql", "uri": "sqlite:///:memory:"}),
        ({"uri": "http://[c"}, {"uri": "http://[d:x"}),
    ],
)
def test_two_places_stay_two(one: Properties, other: Properties) -> None:
    assert same_catalog(CatalogEntry("second", other), [CatalogEntry("first", one)]) is None


def test_a_catalog_is_not_its_own_double() -> None:
    entry = CatalogEntry("lake", {"uri": "http://c"})
    assert same_catalog(entry, [entry]) is None
