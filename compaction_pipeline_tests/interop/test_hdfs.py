"""Our FileIO on a real HDFS, and tables there: Java reads what our compaction, expiry and removal of orphans leave."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.formats.file_io.hdfs_clients import USER
from compaction_pipeline.formats.file_io.hdfs_files import PART_BYTES
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO
from compaction_pipeline.iceberg.catalogs.site_files import SiteFolder
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline.iceberg.upkeep.listed_files import listed_files
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.interop.hive_warehouse import HiveWarehouse
from compaction_pipeline_tests.interop.upkept import AT_ONCE, Upkept, written
from compaction_pipeline_tests.real_services.hdfs import HdfsCluster, hdfs_cluster
from compaction_pipeline_tests.real_services.hive_metastore import HiveMetastore

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    with hdfs_cluster(tmp_path_factory.mktemp("hdfs")) as cluster:
        yield cluster


def write(io: ObjectFileIO, path: str, data: bytes) -> None:
    with io.new_output(path).create() as stream:
        stream.write(data)


def read(io: ObjectFileIO, path: str) -> bytes:
    with io.new_input(path).open() as stream:
        return bytes(stream.read())


def test_a_file_has_the_bytes_that_were_written(hdfs: HdfsCluster) -> None:
    io, path = ObjectFileIO(), f"{hdfs.url}/bytes/of"
    data = os.urandom(PART_BYTES) + b"end"
    for name, expected in (("empty", b""), ("small", b"abc"), ("parts", data)):
        write(io, f"{path}/{name}", expected)
        assert len(ObjectFileIO().new_input(f"{path}/{name}")) == len(expected)
        assert read(io, f"{path}/{name}") == expected
    file = io.new_input(f"{path}/parts")
    assert [one.to_pybytes() for one in file.read_spans([(1, 4), (len(data) - 2, 99), (len(data) + 5, 1)])] == [data[1:5], b"nd", b""]
    tail = file.tail(7, 3)
    assert (tail.data, tail.size) == (b"end", len(data))


def test_a_listing_of_many_answers_tells_every_file_with_size_and_time(hdfs: HdfsCluster) -> None:
    io, folder = ObjectFileIO(), f"{hdfs.url}/listing/t"
    names = [f"a{number}" for number in range(7)] + ["b/c/d.parquet", "b/e"]
    for name in names:
        write(io, f"{folder}/{name}", name.encode())
    write(io, f"{folder}2/none of t", b"")
    found = list(listed_files(io, f"{folder}/"))
    assert {one.path: one.size_bytes for one in found} == {f"{folder}/{name}": len(name) for name in names}
    for one in found:
        known = io.new_input(one.path)
        assert len(known) == one.size_bytes
        assert known.version == one.version == known.tail(1, 1).version
    assert sorted(files_under(io, folder)) == sorted(f"{folder}/{name}" for name in names)
    assert sorted(files_under(io, folder, recursive=False)) == [f"{folder}/{name}" for name in names[:7]]
    assert list(listed_files(io, f"{hdfs.url}/no/such/folder")) == []


def test_each_failure_is_told_apart(hdfs: HdfsCluster) -> None:
    io, path = ObjectFileIO(), f"{hdfs.url}/failures/f"
    write(io, path, b"abc")
    with pytest.raises(FileExistsError):
        write(io, path, b"other")
    assert read(io, path) == b"abc"
    with pytest.raises(FileNotFoundError):
        read(io, f"{path}2")
    with pytest.raises(FileNotFoundError):
        io.delete(f"{path}2")
    with pytest.raises(IsADirectoryError):
        io.delete(f"{hdfs.url}/failures")
    with pytest.raises(IsADirectoryError):
        read(io, f"{hdfs.url}/failures")
    with pytest.raises(ValueError, match="rename it"):
        io.new_input(f"{hdfs.url}/failures/../failures/f")
    with pytest.raises(OSError, match="refused") as refused:
        read(io, "hdfs://127.0.0.1:1/f")
    assert storage_failure(refused.value) is StorageFailure.PASSING
    assert io.delete_many([path, f"{path}2"]) == {}
    assert not io.new_input(path).exists()


def test_an_error_while_a_file_is_written_leaves_no_file(hdfs: HdfsCluster) -> None:
    io, path = ObjectFileIO(), f"{hdfs.url}/broken/f"

    def fail() -> None:
        with io.new_output(path).create() as stream:
            stream.write(bytes(2 * PART_BYTES + 1))
            assert io.new_input(path).exists()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not io.new_input(path).exists()


def test_the_user_of_one_catalog_is_not_that_of_another(hdfs: HdfsCluster) -> None:
    """Also when both are used at once, and although the client library takes the user from its process."""
    ours, alice, bob = ObjectFileIO(), ObjectFileIO({USER: "alice"}), ObjectFileIO({USER: "bob"})
    write(ours, f"{hdfs.url}/users/f", b"ours")

    def denied(io: ObjectFileIO, number: int) -> str:
        try:
            write(io, f"{hdfs.url}/users/g{number}", b"")
        except PermissionError as error:
            return str(error)
        return "allowed"

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(denied, [ours, alice, bob] * 4, range(12)))
    assert ["allowed" if one == "allowed" else one.split("user=")[1].split(",")[0] for one in answers] == ["allowed", "alice", "bob"] * 4
    assert read(alice, f"{hdfs.url}/users/f") == b"ours"
    assert "HADOOP_USER_NAME" not in os.environ


def test_catalogs_with_other_site_files_have_other_name_nodes(hdfs: HdfsCluster, tmp_path: Path) -> None:
    """One names the cluster as its own. The other knows it as a service with two name nodes, the first of which is down."""
    service = {
        "dfs.nameservices": "ns",
        "dfs.ha.namenodes.ns": "down,up",
        "dfs.namenode.rpc-address.ns.down": "127.0.0.1:1",
        "dfs.namenode.rpc-address.ns.up": f"{hdfs.host}:{hdfs.port}",
    }
    files = {"own": site({"fs.defaultFS": hdfs.url}), "service": site(service), "none": site({"fs.defaultFS": "hdfs://127.0.0.1:1"})}
    folder = SiteFolder(lambda file_id: files[file_id], tmp_path)
    own, of_service, of_none = (
        ObjectFileIO(folder.filled(CatalogEntry("lake", {"hdfs.core-site": f"site:{name}"})).properties) for name in files
    )
    write(own, "hdfs:///sites/f", b"abc")
    assert read(of_service, "hdfs://ns/sites/f") == b"abc"
    assert [one.path for one in listed_files(of_service, "hdfs://ns/sites")] == ["hdfs://ns/sites/f"]
    for io, path in ((of_none, "hdfs:///sites/f"), (own, "hdfs://ns/sites/f")):
        with pytest.raises(OSError, match="HDFS"):
            read(io, path)


def site(settings: Mapping[str, str]) -> bytes:
    properties = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(properties)}</configuration>".encode()


@dataclass(frozen=True)
class Java:
    """Reads a table with Iceberg's Java library: its newest metadata, or, with `name`, the table that its own catalog names."""

    spark: Any
    table: LakeTable
    name: str | None = None

    def ids(self) -> list[int]:
        self.table.table.refresh()
        named = self.name or self.table.table.metadata_location
        rows = self.spark.read.format("iceberg").load(named)
        return sorted(row[0] for row in rows.select("id").collect())


@pytest.mark.parametrize("engine", ["in this process", "on Spark"])
def test_a_table_is_compacted_expired_and_cleaned_and_java_reads_its_rows(
    hdfs: HdfsCluster, iceberg_spark: Any, tmp_path: Path, engine: str
) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{hdfs.url}/{tmp_path.name}",
        "init_catalog_tables": "true",
    }
    table = Lake(tmp_path, properties=properties).table(properties=AT_ONCE)
    java = Java(iceberg_spark, table)
    rows = written(table)
    assert java.ids() == rows
    product = Upkept(tmp_path, on_spark=engine == "on Spark")
    product.register(properties)
    for step in (product.compact, product.expire, product.remove_an_orphan):
        step(table)
        assert java.ids() == rows
    product.services.close()


def test_a_table_of_a_hive_metastore_is_looked_after_beside_writers_in_java(
    hdfs: HdfsCluster, metastore: HiveMetastore, iceberg_spark: Any, tmp_path: Path
) -> None:
    """Java finds the table by the metastore, as its users do, and commits between our works, which go by the metastore too."""
    hive = HiveWarehouse(tmp_path, metastore, root=f"{hdfs.url}/hive-{tmp_path.name}")
    hive.register(iceberg_spark)
    table = Lake(tmp_path, properties=hive.properties, namespace=hive.database).table(properties=AT_ONCE)
    java = Java(iceberg_spark, table, f"{hive.name}.{hive.database}.t")
    rows = written(table)
    assert table.table.location().startswith(hdfs.url)
    assert java.ids() == rows
    product = Upkept(tmp_path)
    product.register(hive.properties)
    for number, step in enumerate((product.compact, product.expire, product.remove_an_orphan)):
        hive.sql(f"INSERT INTO {{t}} VALUES ({100 + number}, 'java'), ({200 + number}, 'java')")
        hive.sql(f"DELETE FROM {{t}} WHERE id = {200 + number} OR id = {rows[0]}")
        rows = [*rows[1:], 100 + number]
        step(table)
        assert java.ids() == rows
        table.table.refresh()
        assert sorted(table.table.scan().to_arrow()["id"].to_pylist()) == rows
        assert hive.locks() == []
    product.services.close()
