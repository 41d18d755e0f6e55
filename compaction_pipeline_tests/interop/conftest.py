"""Iceberg's own Java library on Spark, for judging what we wrote and for writing on top of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

_PACKAGES = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.xerial:sqlite-jdbc:3.46.1.3"


@pytest.fixture(scope="session")
def iceberg_spark() -> Iterator[Any]:
    """A Spark session with Iceberg's extensions; catalogs are added by `spark_catalog`."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("interop")
        .config("spark.jars.packages", _PACKAGES)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture
def spark_catalog(iceberg_spark: Any) -> Any:
    """Registers a PyIceberg SQL catalog on SQLite with Spark, under the same name: `register(name, database, warehouse)`."""

    def register(name: str, database: str, warehouse: str) -> Any:
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{database}",
            ".warehouse": warehouse,
            ".jdbc.schema-version": "V1",
            # PyIceberg commits between two statements of Spark.
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            iceberg_spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
        return iceberg_spark

    return register
