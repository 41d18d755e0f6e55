"""An HDFS that lets nobody in without a ticket of Kerberos: keytabs become tickets, and workers get tickets alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.credentials import credentials_end
from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.formats.file_io.hdfs_clients import for_other_hosts
from compaction_pipeline.formats.file_io.kerberos import Login, lifetime, ticket_cache
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.real_services.hdfs import HdfsCluster, hdfs_cluster
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
    }
    folder = tmp_path_factory.mktemp("hdfs")
    with hdfs_cluster(folder, settings, [f"-Djava.security.krb5.conf={realm.krb5_conf}"], "localhost") as cluster:
        yield cluster


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


def test_a_catalog_of_stored_files_is_compacted(hdfs: HdfsCluster, logins: dict[str, dict[str, str]], tmp_path: Path) -> None:
    site = f"""<configuration>
      <property><name>hadoop.security.authentication</name><value>kerberos</value></property>
      <property><name>fs.defaultFS</name><value>{hdfs.url}</value></property>
    </configuration>"""
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{hdfs.url}/warehouse",
        "init_catalog_tables": "true",
    }
    login = logins[SUPERUSER]
    table = Lake(tmp_path, properties={**properties, **login}).table()
    for one in range(6):
        table.ids(one)
    services = OpenedServices(Settings(home=tmp_path / "state", merge_engine="in-process"))
    files = {
        "hdfs.core-site": services.site_files.add("core-site", site.encode()),
        "kerberos.keytab": services.site_files.add("keytab", Path(login["kerberos.keytab"]).read_bytes()),
        "kerberos.krb5-conf": services.site_files.add("krb5-conf", Path(login["kerberos.krb5-conf"]).read_bytes()),
    }
    named = {key: file.reference for key, file in files.items()}
    services.stores.catalogs.add(CatalogEntry("lake", {**properties, "kerberos.principal": login["kerberos.principal"], **named}))
    assert services.compact_tables.compact(table.identifier, PlanRequest(types=(CompactionType.FULL,), force=True)).committed
    services.close()
    table.table.refresh()
    assert len(list(table.table.scan().plan_files())) == 1
    assert sorted(table.table.scan().to_arrow()["id"].to_pylist()) == list(range(6))
