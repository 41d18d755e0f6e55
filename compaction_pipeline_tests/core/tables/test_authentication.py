from __future__ import annotations

import pytest

from compaction_pipeline.core.tables.authentication import LOGINS, Authentication, authentication_of, authentication_problems

REST = {"type": "rest", "uri": "https://catalog.example"}
BASIC = {"auth.type": "basic", "auth.basic.username": "me", "auth.basic.password": "p"}
OAUTH2 = {
    "auth.type": "oauth2",
    "auth.oauth2.client_id": "me",
    "auth.oauth2.client_secret": "s",
    "auth.oauth2.token_url": "https://login.example/token",
}
SIGV4 = {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-central-1", "rest.signing-name": "glue"}
KERBEROS = {"kerberos.principal": "me@EXAMPLE.COM", "kerberos.keytab": "file:/etc/me.keytab"}
KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "s"}

RIGHT = [
    (Authentication.SIMPLE, REST),
    (Authentication.SIMPLE, {**REST, "auth.type": "noop"}),
    (Authentication.SIMPLE, {**REST, "header.Authorization": "Basic bWU6cA=="}),
    (Authentication.SIMPLE, {"type": "sql", "uri": "postgresql://me:p@db/catalog", "hdfs.user": "etl"}),
    (Authentication.BASIC, {**REST, **BASIC, **KEYS}),
    (Authentication.KERBEROS, {"type": "hive", "uri": "thrift://metastore:9083", **KERBEROS, "hive.kerberos-authentication": "true"}),
    (Authentication.KERBEROS, {**REST, **KERBEROS}),
    (Authentication.AKSK, {"type": "glue", "glue.access-key-id": "k", "glue.secret-access-key": "s"}),
    (Authentication.AKSK, {"type": "glue", "client.access-key-id": "k", "client.secret-access-key": "s", "client.session-token": "t"}),
    (Authentication.AKSK, {"type": "sql", "uri": "sqlite:////c.db", **KEYS}),
    (Authentication.SIGV4, {**REST, **SIGV4, "client.access-key-id": "k", "client.secret-access-key": "s"}),
    (Authentication.TOKEN, {**REST, "token": "t", **KEYS}),
    (Authentication.OAUTH2, {**REST, "credential": "id:secret", "oauth2-server-uri": "https://login.example/t", "scope": "catalog"}),
    (Authentication.OAUTH2, {**REST, **OAUTH2, "auth.oauth2.refresh_margin": "30"}),
    (Authentication.OAUTH2, {**REST, **OAUTH2, **KERBEROS, "ssl.cabundle": "/etc/ca.pem"}),
    (Authentication.GOOGLE, {**REST, "auth.type": "google", "auth.google.credentials_path": "/etc/g.json"}),
    (Authentication.ENTRA, {**REST, "auth.type": "entra", "auth.entra.scopes": "https://storage.azure.com/.default"}),
    (Authentication.TLS, {**REST, "ssl.client.cert": "/etc/c.pem", "ssl.client.key": "/etc/k.pem", "ssl.cabundle": "/etc/ca.pem"}),
]


@pytest.mark.parametrize(("kind", "properties"), RIGHT)
def test_right_properties_tell_their_authentication_and_have_no_problem(kind: Authentication, properties: dict[str, str]) -> None:
    assert authentication_of(properties) is kind
    assert authentication_problems(None, properties) == ()
    assert authentication_problems(kind.value, properties) == ()


def test_every_authentication_has_an_example_here() -> None:
    assert {kind for kind, _ in RIGHT} == set(Authentication) == set(LOGINS)


@pytest.mark.parametrize("beside", ["tls", "aksk"])
def test_certificates_and_keys_of_the_storage_stand_beside_any_login(beside: str) -> None:
    assert authentication_problems(beside, {**REST, "token": "t", **KEYS, "ssl.client.cert": "/c.pem"}) == ()


BAD = [
    ("ldap", REST, ["'authentication' is 'ldap' but must be one of simple, basic, kerberos"]),
    ("basic", {**REST, "auth.type": "basic", "auth.basic.username": "me"}, ["'basic' needs 'auth.basic.password'"]),
    ("basic", {**REST, "token": "t"}, ["'auth.type' must be 'basic'", "'token' of 'token': keep one of the two"]),
    ("kerberos", {**REST, "kerberos.principal": "me", "kerberos.keytab": "k"}, ["'kerberos.principal' is 'me' but must be name@REALM"]),
    ("kerberos", {"type": "glue"}, ["'kerberos', which only hive or rest or sql catalogs know; this is glue"]),
    ("oauth2", {"type": "sql", "credential": "i:s"}, ["'oauth2', which only rest catalogs know; this is sql"]),
    ("aksk", {"type": "glue", "glue.access-key-id": "k"}, ["'aksk' needs 'glue.secret-access-key'", "'glue.access-key-id' needs"]),
    ("sigv4", REST, ["'rest.sigv4-enabled' must be 'true' when 'authentication' is 'sigv4'"]),
    ("token", REST, ["'token' needs 'token'"]),
    (
        "oauth2",
        REST,
        ["'oauth2' needs 'credential' or 'auth.oauth2.client_id' and 'auth.oauth2.client_secret' and 'auth.oauth2.token_url'"],
    ),
    ("simple", {**REST, "token": "t"}, ["'authentication' is 'simple', but there is 'token' of 'token'"]),
    (None, {**REST, "token": "t", "credential": "i:s"}, ["'authentication' is 'oauth2', but there is 'token' of 'token'"]),
    (None, {**REST, **OAUTH2, "credential": "i:s"}, ["'credential' and 'auth.oauth2.client_id' are two logins"]),
    (None, {**REST, **SIGV4, "token": "t"}, ["'authentication' is 'sigv4', but there is 'token' of 'token'"]),
    (None, {**REST, "token": "t", "header.authorization": "x"}, ["'header.authorization' is overwritten by 'token'"]),
    (None, {**REST, "auth.type": "custom"}, ["'auth.type' is 'custom' but must be one of noop, basic, oauth2, google, entra"]),
    (None, {**REST, **OAUTH2, "auth.oauth2.expires_in": "1h"}, ["'auth.oauth2.expires_in' is '1h' but must be a whole number of seconds"]),
    (None, {**REST, **OAUTH2, "auth.oauth2.token_url": "login"}, ["'auth.oauth2.token_url' must begin with http:// or https://"]),
    (None, {**REST, "rest.sigv4-enabled": "yes"}, ["'rest.sigv4-enabled' is 'yes' but must be true or false"]),
    (None, {**REST, "ssl.client.key": "/k.pem"}, ["'ssl.client.key' needs 'ssl.client.cert' too"]),
    (None, {**REST, "s3.secret-access-key": "s"}, ["'s3.secret-access-key' needs 's3.access-key-id' too"]),
    (None, {**REST, **BASIC, "auth.basic.user": "me"}, ["there is no property 'auth.basic.user'; do you mean 'auth.basic.username'?"]),
    (None, {**REST, "rest.auth.type": "basic"}, ["'rest.auth.type' is a key of Iceberg's Java library: write 'auth.type'"]),
    (None, {**REST, "token": " secret-word\n"}, ["'token' begins or ends with a blank, or has a line break"]),
]


@pytest.mark.parametrize(("named", "properties", "told"), BAD)
def test_each_problem_is_told_with_its_key_and_its_rule(named: str | None, properties: dict[str, str], told: list[str]) -> None:
    problems = authentication_problems(named, properties)
    assert len(problems) >= len(told)
    for sentence in told:
        assert any(sentence in problem for problem in problems), problems
    assert "secret-word" not in "".join(problems)


def test_all_problems_are_told_at_once() -> None:
    bad = {**REST, "auth.type": "basic", "credential": "i:s", "ssl.client.key": "/k", "auth.oauth2.expires_in": "0", "kerberos.realm": "R"}
    assert len(authentication_problems("basic", bad)) == 5
