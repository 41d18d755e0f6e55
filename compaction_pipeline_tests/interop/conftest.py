"""Fixtures: Iceberg's Java library on Spark, which reads our commits and writes on top of them, and Flink, an S3 and a REST catalog."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.spark.java import find_java
from compaction_pipeline_tests.interop.peers import alone_in_the_cache
from compaction_pipeline_tests.interop.racing import Lagging
from compaction_pipeline_tests.interop.warehouse import Compactions, Warehouse
from compaction_pipeline_tests.real_services.hive_metastore import HiveMetastore, hive_metastore
from compaction_pipeline_tests.real_services.lake import ServedLake
from compaction_pipeline_tests.real_services.servers import (
    GlueServer,
    RestCatalogServer,
    S3Server,
    glue_server,
    rest_catalog_server,
    s3_server,
)

_PACKAGES = ",".join(
    [
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.apache.iceberg:iceberg-aws-bundle:1.12.0",
        "org.xerial:sqlite-jdbc:3.46.1.3",
    ]
)


@pytest.fixture(scope="session")
def iceberg_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session with Iceberg's extensions. The fixture `spark_catalog` adds catalogs to it."""
    from pyspark.sql import SparkSession

    # This is the Java that the product finds. It is put on the PATH, because Flink and Ivy are started as `java`.
    java = find_java(os.environ, tmp_path_factory.mktemp("java")).path
    os.environ |= {"JAVA_HOME": java, "PATH": f"{java}/bin{os.pathsep}{os.environ['PATH']}"}
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("interop")
        .config("spark.jars.packages", _PACKAGES)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        # Its queries read a few rows, so to compile them well would take longer than they run.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    )
    with alone_in_the_cache():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    yield spark
    spark.stop()


@pytest.fixture
def spark_catalog(iceberg_spark: Any) -> Any:
    """Registers a PyIceberg SQL catalog on SQLite with Spark, under the same name: `register(name, database, warehouse)`."""

    def register(name: str, database: str, warehouse: str) -> Any:
        return registered(iceberg_spark, name, database, warehouse)

    return register


def registered(spark: Any, name: str, database: str, warehouse: str) -> Any:
    """The Spark session, with this catalog added."""
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{database}",
        ".warehouse": warehouse,
        ".jdbc.schema-version": "V1",
        # PyIceberg commits between two statements of Spark, so Spark must load the table each time.
        ".cache-enabled": "false",
    }
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{name}{key}", value)
    return spark


@pytest.fixture(scope="session")
def flink_jvm() -> Iterator[Any]:
    """A JVM that runs Flink. Flink is fetched on first use."""
    from compaction_pipeline_tests.interop import flink

    with flink.flink_jvm() as jvm:
        yield jvm


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3. Its program is fetched and started on first use."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory, s3: S3Server) -> Iterator[RestCatalogServer]:
    """A real REST catalog on that S3. Its program is fetched and started on first use."""
    with rest_catalog_server(tmp_path_factory.mktemp("rest"), s3) as server:
        yield server


@pytest.fixture(scope="session")
def running_metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    with hive_metastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture
def metastore(running_metastore: HiveMetastore) -> Iterator[HiveMetastore]:
    """A real Hive metastore without a table, started on first use.

    Upkeep deletes no file while a catalog names a table that cannot be read, so no test may leave one to the next.
    """
    yield running_metastore
    running_metastore.forget_databases()


@pytest.fixture(scope="session")
def glue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GlueServer]:
    """An API of Glue, started on first use."""
    with glue_server(tmp_path_factory.mktemp("glue")) as server:
        yield server


@pytest.fixture
def served_lake(tmp_path: Path, s3: S3Server, rest_catalog: RestCatalogServer) -> Iterator[ServedLake]:
    """A new namespace in that catalog, and the product, which reaches both servers through proxies."""
    with ServedLake(tmp_path, s3, rest_catalog) as lake:
        yield lake


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that prints a line of figures, also when the test passes."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")

    def line(text: str) -> None:
        # A worker of pytest-xdist has no terminal. It shares this stream with the process that has one.
        with capture.global_and_fixture_disabled():
            print(f"\n{text}", file=sys.__stderr__, flush=True)

    return line


@pytest.fixture
def warehouse(tmp_path: Path, spark_catalog: Any) -> Warehouse:
    """An empty catalog that Spark, PyIceberg and the product share."""
    return Warehouse(tmp_path, spark_catalog)


@pytest.fixture
def compactions(warehouse: Warehouse) -> Iterator[Compactions]:
    """The product on that catalog. It merges in this process."""
    product = Compactions(warehouse)
    yield product
    product.close()


@pytest.fixture
def lagging_compactions(warehouse: Warehouse) -> Iterator[Compactions]:
    """The product on that catalog, with an engine whose merges take long enough for others to commit to the table `t`."""
    product = Compactions(warehouse, Lagging(InProcessMergeEngine(), lambda: warehouse.table().metadata_location))
    yield product
    product.close()
