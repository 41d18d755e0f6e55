"""What a catalog gets of the stored files that it names: settings, and paths of files that only this user may read."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.formats.file_io.hdfs_clients import hdfs_place
from compaction_pipeline.iceberg.catalogs.site_files import SiteFolder


def site(**values: str) -> bytes:
    properties = (f"<property><name>{name.replace('_', '.')}</name><value>{value}</value></property>" for name, value in values.items())
    return f"<configuration>{''.join(properties)}</configuration>".encode()


FILES: Mapping[str, bytes] = {
    "core-1": site(fs_defaultFS="hdfs://one", dfs_client_x="core", fs_s3a_secret_key="s3cret"),
    "hdfs-1": site(dfs_client_x="hdfs", dfs_ha_namenodes_one="a,b"),
    "core-2": site(fs_defaultFS="hdfs://two:9000", hadoop_security_authentication="kerberos"),
    "hive": site(hive_metastore_uris="thrift://a:9083,thrift://b:9083", hive_metastore_sasl_enabled="true"),
    "keytab": b"\x05\x02key",
}


def content(file_id: str) -> bytes:
    if file_id not in FILES:
        raise NotFoundError(f"there is no file {file_id!r}")
    return FILES[file_id]


@pytest.fixture
def folder(tmp_path: Path) -> SiteFolder:
    return SiteFolder(content, tmp_path / "site-files")


def filled(folder: SiteFolder, **named: str) -> Mapping[str, str]:
    keys = {"core": "hdfs.core-site", "hdfs": "hdfs.hdfs-site", "hive": "hive.hive-site", "keytab": "kerberos.keytab"}
    return folder.filled(CatalogEntry("lake", {keys.get(key, key): value for key, value in named.items()})).properties


def test_two_catalogs_of_one_process_have_their_own_settings(folder: SiteFolder) -> None:
    one, two = filled(folder, core="site:core-1", hdfs="site:hdfs-1"), filled(folder, core="site:core-2")
    assert one == {"hdfs.conf.fs.defaultFS": "hdfs://one", "hdfs.conf.dfs.client.x": "hdfs", "hdfs.conf.dfs.ha.namenodes.one": "a,b"}
    assert hdfs_place(one, "hdfs", "").url == "hdfs://one"
    assert hdfs_place(one, "hdfs", "one").url == "hdfs://one"
    assert hdfs_place(one, "hdfs", "alone").url == "hdfs://alone:8020"
    assert hdfs_place(two, "hdfs", "").url == "hdfs://two:9000"
    assert set(hdfs_place(one, "hdfs", "").conf).isdisjoint(hdfs_place(two, "hdfs", "").conf)


def test_own_properties_win_over_files(folder: SiteFolder) -> None:
    found = folder.filled(CatalogEntry("lake", {"hdfs.core-site": "site:core-1", "hdfs.conf.dfs.client.x": "mine"})).properties
    assert found["hdfs.conf.dfs.client.x"] == "mine"
    assert filled(folder, hive="site:hive") == {"uri": "thrift://a:9083", "hive.kerberos-authentication": "true"}
    assert filled(folder, hive="site:hive", uri="thrift://mine:1")["uri"] == "thrift://mine:1"


def test_a_keytab_lies_in_a_folder_and_a_file_of_this_user_alone(folder: SiteFolder) -> None:
    path = Path(filled(folder, keytab="site:keytab")["kerberos.keytab"])
    for _ in range(2):
        assert path.read_bytes() == FILES["keytab"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        # Whatever somebody did to it, the next opening finds the stored content.
        path.write_bytes(b"tampered")
        path.chmod(0o644)
        assert filled(folder, keytab="site:keytab")["kerberos.keytab"] == str(path)
    assert [one.name for one in path.parent.iterdir()] == ["keytab"]


def test_a_file_that_is_gone_is_an_error_and_no_default(folder: SiteFolder) -> None:
    # NotFoundError would say that the table is gone, and its history would go with it.
    with pytest.raises(ConfigError, match="no file 'gone'"):
        filled(folder, core="site:gone")
    entry = CatalogEntry("lake", {"kerberos.keytab": "/etc/krb5.keytab"})
    assert folder.filled(entry) is entry


def test_a_user_beside_kerberos_is_refused() -> None:
    with pytest.raises(PermissionError, match=r"'hdfs.user' is 'me', but Kerberos tells the user"):
        hdfs_place({"hdfs.user": "me", "hdfs.conf.hadoop.security.authentication": "kerberos"}, "hdfs", "a")
    login = {"kerberos.principal": "me@R", "kerberos.keytab": "/k"}
    assert hdfs_place({**login, "hdfs.conf.hadoop.security.authentication": "simple", "hdfs.user": "me"}, "hdfs", "a").login is None
    assert hdfs_place(login, "hdfs", "a").login is not None
