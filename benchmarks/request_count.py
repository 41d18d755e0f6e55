"""Counts the requests to S3 of one compaction of small files, and measures its time at 0 and 30 ms of latency.

    python benchmarks/request_count.py

The table has 26 data files and 26 equality-delete files of a few kB. They are on an S3 (s3proxy) behind a proxy that counts, and the
catalogs are on SQLite. Ours runs in this process without Spark, from listing the catalog to the commit. The peer is Iceberg's
`rewrite_data_files` in a Spark session with S3FileIO. Goals: at most one GET for each small file and 90 requests in all, fewer requests
than Iceberg's, and at 30 ms at most twice the time that it takes without latency.

This script is not called `requests.py`, because every script in this folder would then import it in place of the library.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from measure import load_average, positive
from opened_services import OpenedServices
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, TimestampType
from real_services import FaultProxy, S3Server, fault_proxy, s3_server

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.formats.file_io.object_io import immutable_files
from compaction_pipeline.iceberg.catalogs import load_catalog
from compaction_pipeline.settings import Settings

FILES = 26
LATENCIES = (0.0, 0.03)
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "price", DoubleType()),
    NestedField(4, "text", StringType()),
    NestedField(5, "count", LongType()),
    NestedField(6, "at", TimestampType()),
    identifier_field_ids=[1],
)
PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0,org.apache.iceberg:iceberg-aws-bundle:1.12.0,org.xerial:sqlite-jdbc:3.46.1.3"
)
BUCKET = "lakehouse"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=positive, default=FILES, help="number of data files; there are as many delete files")
    parser.add_argument("--no-iceberg", action="store_true", help="measure only ours, which needs no Spark")
    arguments = parser.parse_args()
    print(load_average())
    with tempfile.TemporaryDirectory(prefix="request-count-") as name, s3_server(Path(name)) as s3, fault_proxy(s3.port) as proxy:
        folder = Path(name)
        # The first run of a process imports modules, so it is not counted.
        _ours(folder / "warm", None, None, arguments.files, 0.0)
        local, _ = _ours(folder / "local", None, None, arguments.files, 0.0)
        print(f"ours, local disk     {local:6.2f} s")
        ours, near = Counter[str](), 0.0
        for latency in LATENCIES:
            seconds, ours = _ours(folder / f"ours-{latency}", s3, proxy, arguments.files, latency)
            near = near or seconds
            print(f"ours, {1000 * latency:2.0f} ms          {seconds:6.2f} s  {_shown(ours)}  ({seconds / near:.1f} x the time at 0 ms)")
        if not arguments.no_iceberg:
            for latency in LATENCIES:
                seconds, peer = _icebergs(folder / f"iceberg-{latency}", s3, proxy, arguments.files, latency)
                print(f"iceberg, {1000 * latency:2.0f} ms       {seconds:6.2f} s  {_shown(peer)}")
            print(f"ratio {sum(peer.values()) / sum(ours.values()):.2f}")


def _shown(counted: Mapping[str, int]) -> str:
    return f"{sum(counted.values())} requests: " + ", ".join(f"{number} {method}" for method, number in sorted(counted.items()))


def _properties(folder: Path, s3: S3Server | None, port: int | None) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    own = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "init_catalog_tables": "true"}
    if s3 is None:
        return {**own, "warehouse": f"file://{folder}/warehouse"}
    return {**own, "warehouse": f"s3://{BUCKET}/{folder.name}", **s3.properties(port)}


def _write(folder: Path, s3: S3Server | None, files: int) -> None:
    """Write the table to the S3 directly, so that the proxy counts none of these requests."""
    catalog = load_catalog("lake", **_properties(folder, s3, None))
    catalog.create_namespace("db")
    table = catalog.create_table(("db", "t"), SCHEMA, properties={"format-version": "2"})
    arrow = schema_to_pyarrow(SCHEMA)
    data, deletes = [], []
    for number in range(files):
        rows = [
            {"id": 40 * number + each, "name": f"name {number} {each}", "price": each / 7, "text": f"text {each * number}", "count": each}
            for each in range(40)
        ]
        rows = [{**row, "at": datetime(2026, 1, 1)} for row in rows]
        data.append(write_parquet_file(table, pa.Table.from_pylist(rows, arrow), content=FileContent.DATA, name=f"data-{number}"))
        gone = pa.table({"id": pa.array([40 * number + 1, 40 * number + 2], pa.int64())})
        file = write_parquet_file(table, gone, content=FileContent.EQUALITY_DELETES, equality_ids=(1,), name=f"delete-{number}")
        deletes.append((file, [1]))
    row_delta(table, data)
    row_delta(table, equality_deletes=deletes)


def _ours(folder: Path, s3: S3Server | None, proxy: FaultProxy | None, files: int, latency: float) -> tuple[float, Counter[str]]:
    properties = _properties(folder, s3, proxy.port if proxy is not None else None)
    _write(folder, s3, files)
    immutable_files.clear()
    services = OpenedServices(Settings(home=folder / "state", merge_engine="in-process"))
    services.stores.catalogs.add(CatalogEntry("lake", properties))
    _begin(proxy, latency)
    started = time.perf_counter()
    services.explore_catalogs.explore()
    table = TableIdentifier("lake", ("db",), "t")
    compaction = services.compact_tables.compact(table, PlanRequest(types=(CompactionType.FULL,), force=True))
    seconds = time.perf_counter() - started
    services.close()
    if not compaction.committed:
        raise SystemExit(f"nothing was committed: {compaction.reason}")
    return seconds, _counted(proxy)


def _begin(proxy: FaultProxy | None, latency: float) -> None:
    if proxy is not None:
        proxy.latency_seconds = latency
        proxy.forget()


def _counted(proxy: FaultProxy | None) -> Counter[str]:
    if proxy is None:
        return Counter()
    proxy.latency_seconds = 0.0
    return Counter(request.method for request in proxy.requests())


def _icebergs(folder: Path, s3: S3Server, proxy: FaultProxy, files: int, latency: float) -> tuple[float, Counter[str]]:
    properties = _properties(folder, s3, proxy.port)
    _write(folder, s3, files)
    spark = _session()
    name = "lake"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{folder}/catalog.db",
        ".warehouse": properties["warehouse"],
        ".jdbc.schema-version": "V1",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".s3.endpoint": properties["s3.endpoint"],
        ".s3.path-style-access": "true",
        ".s3.access-key-id": properties["s3.access-key-id"],
        ".s3.secret-access-key": properties["s3.secret-access-key"],
        ".client.region": "us-east-1",
    }
    session = spark.newSession()
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.{name}{key}", value)
    _begin(proxy, latency)
    started = time.perf_counter()
    session.sql(
        f"CALL {name}.system.rewrite_data_files(table => 'db.t', options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    ).collect()
    return time.perf_counter() - started, _counted(proxy)


def _session() -> Any:
    from pyspark.sql import SparkSession

    from compaction_pipeline.spark.java import find_java

    java = find_java(os.environ, Path(tempfile.gettempdir())).path
    os.environ |= {"JAVA_HOME": java, "PATH": f"{java}/bin{os.pathsep}{os.environ['PATH']}"}
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars.packages", PACKAGES)
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    main()
