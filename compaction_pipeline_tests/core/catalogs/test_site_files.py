"""Which files are taken as site files, krb5.conf and keytab, and which settings the HDFS client gets."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.catalogs.over_http import problems_over_http
from compaction_pipeline.core.catalogs.site_files import (
    MOST_BYTES,
    SiteFileKind,
    of_hdfs,
    reference_problems,
    settings,
    site_file_id,
    site_file_problem,
)

SITE = b"""<?xml version="1.0"?>
<?xml-stylesheet type="text/xsl" href="configuration.xsl"?>
<!-- of the cluster -->
<configuration>
  <property><name>fs.defaultFS</name><value>hdfs://${dfs.nameservices}</value></property>
  <property><name> dfs.nameservices </name><value>
    one</value><final>true</final></property>
  <property><name>dfs.client.x</name><value>${user.name}</value></property>
  <property><name>hadoop.security.group.mapping.ldap.bind.password</name><value>s3cret</value></property>
  <property><name>dfs.client.loop</name><value>${dfs.client.loop}!</value></property>
</configuration>"""
KRB5 = b"[libdefaults]\n default_realm = EXAMPLE.COM\n"
KEYTAB = b"\x05\x02\x00\x00\x00\x0a1234567890"


def test_good_files_have_no_problem() -> None:
    assert [site_file_problem(kind, SITE) for kind in (SiteFileKind.CORE_SITE, SiteFileKind.HDFS_SITE, SiteFileKind.HIVE_SITE)] == [
        None
    ] * 3
    assert site_file_problem(SiteFileKind.KRB5_CONF, KRB5) is None
    assert site_file_problem(SiteFileKind.KEYTAB, KEYTAB) is None


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        ("core-site", b'<!DOCTYPE c [<!ENTITY x SYSTEM "file:///etc/passwd">]><configuration/>', "DOCTYPE"),
        ("core-site", b"<!DOCTYPE configuration><configuration/>", "DOCTYPE"),
        ("core-site", b"<configuration><property></configuration>", "mismatched tag in line 1"),
        ("core-site", b"<configuration>&x;</configuration>", "well-formed"),
        ("core-site", b"<settings/>", "<configuration>"),
        ("core-site", b"", "well-formed"),
        ("core-site", b"{}", "well-formed"),
        ("hdfs-site", b'<configuration xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="x"/></configuration>', "includes"),
        ("hive-site", b"<configuration>" + b" " * MOST_BYTES + b"</configuration>", "1 MiB"),
        ("krb5-conf", b"[libdefaults]\nincludedir /etc/krb5.conf.d\n", "include"),
        ("krb5-conf", b"include /etc/krb5.conf\n[realms]\n", "include"),
        ("krb5-conf", b"module /x.so:y\n[realms]\n", "modules"),
        ("krb5-conf", b"[libdefaults]\n[plugins]\n clpreauth = {\n module = x:/tmp/x.so\n }\n", "modules"),
        ("krb5-conf", b"[libdefaults]\n plugin_base_dir = /tmp\n", "modules"),
        ("krb5-conf", b"\xff\xfe", "UTF-8"),
        ("krb5-conf", b"password", "neither"),
        ("keytab", b"\x05\x02" + bytes(5 * MOST_BYTES), "1 MiB"),
        ("keytab", b"-----BEGIN", "keytab"),
        ("keytab", b"", "keytab"),
    ],
)
def test_other_files_are_refused_with_the_rule_and_without_their_content(kind: str, content: bytes, why: str) -> None:
    problem = site_file_problem(SiteFileKind(kind), content)
    assert problem is not None
    assert why in problem
    assert "password" not in problem


def test_the_client_gets_its_settings_and_no_password_of_a_server() -> None:
    assert of_hdfs(settings(SITE)) == {
        "fs.defaultFS": "hdfs://one",
        "dfs.nameservices": "one",
        "dfs.client.x": "${user.name}",
        "dfs.client.loop": "${dfs.client.loop}" + "!" * 21,
    }


def test_one_content_of_one_kind_has_one_id() -> None:
    assert site_file_id(SiteFileKind.KEYTAB, KEYTAB) == site_file_id(SiteFileKind.KEYTAB, bytes(KEYTAB))
    assert len({site_file_id(kind, content) for kind in SiteFileKind for content in (SITE, KRB5)}) == 2 * len(SiteFileKind)


def test_a_property_must_name_a_stored_file_of_its_kind() -> None:
    stored = {"core-site-1": SiteFileKind.CORE_SITE, "keytab-1": SiteFileKind.KEYTAB}
    good = {"hdfs.core-site": "site:core-site-1", "kerberos.keytab": "site:keytab-1", "kerberos.krb5-conf": "/etc/krb5.conf"}
    assert list(reference_problems(good, stored)) == []
    bad = {"hdfs.core-site": "/etc/core-site.xml", "hdfs.hdfs-site": "site:core-site-1", "kerberos.keytab": "site:gone"}
    problems = dict(reference_problems(bad, stored))
    assert set(problems) == set(bad)
    assert "is a core-site" in problems["hdfs.hdfs-site"]
    assert "no such file" in problems["kerberos.keytab"]


def test_a_caller_over_http_may_name_stored_files_and_no_others() -> None:
    asked = {"hdfs.core-site": "site:core-site-1", "kerberos.keytab": "site:keytab-1", "kerberos.krb5-conf": "/etc/krb5.conf"}
    assert [problem.key for problem in problems_over_http(asked, asked)] == ["kerberos.krb5-conf"]
    assert problems_over_http({}, {"kerberos.keytab": None}, {"kerberos.keytab": "site:keytab-1"}) == ()
    refused = problems_over_http({}, {"kerberos.keytab": None}, {"kerberos.keytab": "/etc/krb5.keytab"})
    assert [problem.key for problem in refused] == ["kerberos.keytab"]
