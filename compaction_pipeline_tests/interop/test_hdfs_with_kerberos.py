"""An HDFS that lets nobody in without a ticket of Kerberos: keytabs become tickets, and workers get tickets alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import AccessDenied, StorageUnavailable
from compaction_pipeline.core.queue.credentials import credentials_end
from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.formats.file_io.hdfs_clients import for_other_hosts
from compaction_pipeline.formats.file_io.kerberos import Login, lifetime, ticket_cache
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.interop.upkept import AT_ONCE, Upkept, written
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.real_services.hdfs import HdfsCluster, hdfs_cluster
from compaction_pipeline_tests.real_services.hive_metastore import HiveMetastore, hive_metastore
from compaction_pipeline_tests.real_services.kdc import REALM, Kdc, kdc

pytestmark = pytest.mark.interop

SUPERUSER, WEB = "hdfs/localhost", "HTTP/localhost"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with kdc(tmp_path_factory.mktemp("kdc")) as running:
        yield running


@pytest.fixture(scope="module")
def logins(realm: Kdc) -> dict[str, dict[str, str]]:
    """The properties by which each principal opens files."""
    keytabs = {SUPERUSER: realm.keytab(SUPERUSER, WEB), "alice": realm.keytab("alice")}
    return {
        name: {"kerberos.principal": f"{name}@{REALM}", "kerberos.keytab": str(path), "kerberos.krb5-conf": str(realm.krb5_conf)}
        for name, path in keytabs.items()
    }


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory, realm: Kdc, logins: dict[str, dict[str, str]]) -> Iterator[HdfsCluster]:
    keytab, principal = logins[SUPERUSER]["kerberos.keytab"], f"{SUPERUSER}@{REALM}"
    settings = {
        "hadoop.security.authentication": "kerberos",
        "dfs.namenode.kerberos.principal": principal,
        "dfs.namenode.keytab.file": keytab,
        "dfs.datanode.kerberos.principal": principal,
        "dfs.datanode.keytab.file": keytab,
        "dfs.web.authentication.kerberos.principal": f"{WEB}@{REALM}",
        "dfs.web.authentication.kerberos.keytab": keytab,
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
        # A metastore makes folders as the client that it works for.
        "hadoop.proxyuser.hive.hosts": "*",
        "hadoop.proxyuser.hive.groups": "*",
    }
    folder = tmp_path_factory.mktemp("hdfs")
    with hdfs_cluster(folder, settings, [f"-Djava.security.krb5.conf={realm.krb5_conf}"], "localhost") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory, realm: Kdc, hdfs: HdfsCluster) -> Iterator[HiveMetastore]:
    """A metastore that lets nobody in without a ticket, and has one itself for HDFS."""
    conf = tmp_path_factory.mktemp("conf")
    (conf / "core-site.xml").write_text(site({"hadoop.security.authentication": "kerberos"}))
    (conf / "hdfs-site.xml").write_text(site({"dfs.namenode.kerberos.principal": f"{SUPERUSER}@{REALM}"}))
    settings = {
        "java.security.krb5.conf": str(realm.krb5_conf),
        "hive.metastore.sasl.enabled": "true",
        "hive.metastore.kerberos.principal": f"hive/localhost@{REALM}",
        "hive.metastore.kerberos.keytab.file": str(realm.keytab("hive/localhost")),
    }
    with hive_metastore(tmp_path_factory.mktemp("metastore"), settings, conf) as server:
        yield server


def site(settings: dict[str, str]) -> str:
    """A site file of Hadoop."""
    properties = (f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items())
    return f"<configuration>{''.join(properties)}</configuration>"


def write(io: ObjectFileIO, path: str, data: bytes) -> None:
    with io.new_output(path).create() as stream:
        stream.write(data)


def read(io: ObjectFileIO, path: str) -> bytes:
    with io.new_input(path).open() as stream:
        return bytes(stream.read())


def test_two_principals_of_one_process_are_told_apart(hdfs: HdfsCluster, logins: dict[str, dict[str, str]]) -> None:
    ours, alice, path = ObjectFileIO(logins[SUPERUSER]), ObjectFileIO(logins["alice"]), f"{hdfs.url}/two/f"
    write(ours, path, b"protected")
    assert read(alice, path) == b"protected"
    with pytest.raises(PermissionError, match="user=alice"):
        write(alice, f"{path}2", b"")
    write(ours, f"{path}2", b"")
    assert not {"KRB5CCNAME", "KRB5_CONFIG", "HADOOP_USER_NAME"} & set(os.environ)


def test_nobody_gets_in_without_a_ticket(hdfs: HdfsCluster, logins: dict[str, dict[str, str]]) -> None:
    for properties in ({}, {"hdfs.user": "hdfs"}):
        with pytest.raises(OSError, match="Kerberos"):
            read(ObjectFileIO(properties), f"{hdfs.url}/f")
    other = {**logins["alice"], "kerberos.principal": f"bob@{REALM}"}
    with pytest.raises(PermissionError, match=f"bob@{REALM} gets no Kerberos ticket") as refused:
        read(ObjectFileIO(other), f"{hdfs.url}/f")
    assert storage_failure(refused.value) is StorageFailure.DENIED


def test_a_worker_gets_a_ticket_and_neither_keytab_nor_path(hdfs: HdfsCluster, logins: dict[str, dict[str, str]]) -> None:
    write(ObjectFileIO(logins[SUPERUSER]), f"{hdfs.url}/worker/f", b"protected")
    given = for_other_hosts(logins["alice"], f"{hdfs.url}/worker")
    assert not any("kerberos." in key[:9] or value.startswith("/") for key, value in given.items())
    assert read(ObjectFileIO(given), f"{hdfs.url}/worker/f") == b"protected"
    cache = ticket_cache(Login(*logins["alice"].values()))
    assert credentials_end(given) is not None
    assert credentials_end(given).timestamp() == lifetime(cache.read_bytes())[1]  # type: ignore[union-attr]
    assert for_other_hosts(logins["alice"], "s3://bucket/t") == {}


def test_a_ticket_is_renewed_when_half_of_its_life_is_over(logins: dict[str, dict[str, str]]) -> None:
    login = Login(*logins["alice"].values())
    path = ticket_cache(login)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    first, (begin, end) = path.read_bytes(), lifetime(path.read_bytes())
    assert end - begin == pytest.approx(3600, abs=60)
    assert ticket_cache(login, begin + (end - begin) * 0.4).read_bytes() == first
    assert ticket_cache(login, begin + (end - begin) * 0.6).read_bytes() != first


def test_tickets_serve_to_their_end_while_no_new_ones_come(realm: Kdc) -> None:
    keytab = realm.keytab("carol")
    login = Login(f"carol@{REALM}", str(keytab), str(realm.krb5_conf))
    first = ticket_cache(login).read_bytes()
    begin, end = lifetime(first)
    keytab.rename(keytab.with_suffix(".gone"))
    assert ticket_cache(login, begin + (end - begin) * 0.9).read_bytes() == first
    with pytest.raises(PermissionError, match="carol"):
        ticket_cache(login, end + 1)


def stored(services: OpenedServices, login: dict[str, str], hdfs: HdfsCluster) -> dict[str, str]:
    """The properties of a login whose files the product keeps."""
    core = site({"hadoop.security.authentication": "kerberos", "fs.defaultFS": hdfs.url})
    files = {
        "hdfs.core-site": services.site_files.add("core-site", core.encode()),
        "kerberos.keytab": services.site_files.add("keytab", Path(login["kerberos.keytab"]).read_bytes()),
        "kerberos.krb5-conf": services.site_files.add("krb5-conf", Path(login["kerberos.krb5-conf"]).read_bytes()),
    }
    return {"kerberos.principal": login["kerberos.principal"], **{key: file.reference for key, file in files.items()}}


def looked_after(product: Upkept, table: LakeTable) -> None:
    """Compact the table, expire its snapshots and remove an orphan file, each after a commit of a writer. No row is lost or revived."""
    rows = written(table)
    for number, step in enumerate((product.compact, product.expire, product.remove_an_orphan)):
        table.ids(100 + number)
        rows.append(100 + number)
        step(table)
        table.table.refresh()
        assert sorted(table.table.scan().to_arrow()["id"].to_pylist()) == rows
    product.services.close()


def test_a_table_of_stored_login_files_is_looked_after(hdfs: HdfsCluster, logins: dict[str, dict[str, str]], tmp_path: Path) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{hdfs.url}/warehouse",
        "init_catalog_tables": "true",
    }
    login = logins[SUPERUSER]
    table = Lake(tmp_path, properties={**properties, **login}).table(properties=AT_ONCE)
    product = Upkept(tmp_path)
    product.register({**properties, **stored(product.services, login, hdfs)})
    looked_after(product, table)


def hive(metastore: HiveMetastore, login: dict[str, str]) -> dict[str, str]:
    return {"type": "hive", "uri": f"thrift://localhost:{metastore.port}", "hive.kerberos-authentication": "true", **login}


def test_a_table_of_a_metastore_with_kerberos_is_looked_after(
    hdfs: HdfsCluster, metastore: HiveMetastore, logins: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    """Its lock is taken, kept and given back, and its pointer swapped, over connections that need tickets."""
    login = logins[SUPERUSER]
    ours = Catalogs(lambda name: CatalogEntry(name, hive(metastore, login)), RequestLimits(30, 60, 60)).catalog("lake")
    ours.create_namespace("shop", {"location": f"{hdfs.url}/shop"})
    table = Lake(tmp_path, properties=hive(metastore, login), namespace="shop").table(properties=AT_ONCE)
    product = Upkept(tmp_path)
    of_site = {"hive.metastore.uris": f"thrift://localhost:{metastore.port}", "hive.metastore.sasl.enabled": "true"}
    kept = product.services.site_files.add("hive-site", site(of_site).encode())
    product.register({"type": "hive", "hive.hive-site": kept.reference, **stored(product.services, login, hdfs)})
    looked_after(product, table)


def test_a_metastore_tells_the_principals_of_one_process_apart(
    hdfs: HdfsCluster, metastore: HiveMetastore, logins: dict[str, dict[str, str]]
) -> None:
    """It makes the folder of a database as the client that asks, and HDFS says who that is."""
    of = {name: hive(metastore, login) for name, login in logins.items()}
    catalogs = Catalogs(lambda name: CatalogEntry(name, of[name]), RequestLimits(30, 60, 60))

    def created(number: int) -> str:
        name = (SUPERUSER, "alice")[number % 2]
        try:
            catalogs.catalog(name).create_namespace(f"apart{number}", {"location": f"{hdfs.url}/apart{number}"})
        except Exception as error:
            return str(error)
        return "created"

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(created, range(8)))
    assert answers[::2] == ["created"] * 4
    assert all("user=alice" in answer for answer in answers[1::2]), answers


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"kerberos.principal": f"bob@{REALM}"}, "bob"),
        ({"hive.kerberos-service-name": "nobody"}, "nobody/localhost"),
        ({"hive.kerberos-authentication": "false"}, "did not answer"),
        ({"kerberos.keytab": "", "kerberos.principal": ""}, "Kerberos does not let this client in at hive@localhost"),
    ],
)
def test_a_metastore_lets_nobody_in_without_a_ticket(
    metastore: HiveMetastore, logins: dict[str, dict[str, str]], change: dict[str, str], word: str
) -> None:
    properties = {key: value for key, value in {**hive(metastore, logins["alice"]), **change}.items() if value}
    with pytest.raises((AccessDenied, StorageUnavailable), match=word):
        Catalogs(lambda name: CatalogEntry(name, properties), RequestLimits(5, 10, 20)).listing("lake")
