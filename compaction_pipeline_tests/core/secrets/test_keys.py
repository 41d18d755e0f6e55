"""Which properties count as secrets, which values are references, and what a caller over HTTP may not set."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.secrets.keys import is_secret, secret_values
from compaction_pipeline.core.secrets.references import (
    Reference,
    Source,
    misspelt_reference,
    reference_of,
    references_in,
    refused_of_caller,
)

SECRETS = {
    "token": "abc",
    "credential": "id:secret",
    "s3.secret-access-key": "abc",
    "s3.session-token": "abc",
    "s3.access-key": "abc",
    "adls.account-key": "abc",
    "adls.sas-token.lake": "abc",
    "adls.connection-string": "AccountKey=abc",
    "gcs.oauth2.token": "abc",
    "header.Authorization": "Bearer abc",
    "header.Cookie": "a=b",
    "header.X-Api-Key": "abc",
    "auth.basic.password": "12345678",
    "client_secret": "abc",
    "uri": "postgresql://me:pw@host/db",
    "s3.proxy-uri": "http://me:pw@proxy:3128",
    "oauth2-server-uri": "https://idp/token?client_secret=abc",
}
NO_SECRETS = {
    "type": "rest",
    "uri": "https://catalog:8181/api",
    "warehouse": "s3://lake/wh",
    "s3.access-key-id": "AKIA",
    "s3.endpoint": "http://localhost:9000",
    "token-refresh-enabled": "true",
    "gcs.oauth2.token-expires-at": "1700000000",
    "oauth2-server-uri": "https://idp/token",
    "credentials-path": "/etc/google.json",
    "table.self-optimizing.enabled": "true",
}


@pytest.mark.parametrize(("key", "value"), SECRETS.items())
def test_a_secret_is_known_by_its_key_or_its_form(key: str, value: str) -> None:
    assert is_secret(key, value)
    assert secret_values({key: value})
    shown = masked_properties({key: value})[key]
    assert "***" in shown
    assert "abc" not in shown


@pytest.mark.parametrize(("key", "value"), NO_SECRETS.items())
def test_what_is_no_secret_stays_readable_in_the_state(key: str, value: str) -> None:
    assert not is_secret(key, value)
    assert not secret_values({key: value})


def test_the_secrets_are_the_parts_that_a_server_may_repeat() -> None:
    properties = {"credential": "id:s3cr3t", "uri": "postgresql://me:p%2Bw@h/d", "header.Authorization": "Bearer xyz", "warehouse": "w"}
    assert secret_values(properties) == {"id:s3cr3t", "s3cr3t", "p%2Bw", "p+w", "p w", "Bearer xyz", "xyz"} - {"p w"}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("token", "env:LAKE_TOKEN", Reference(Source.ENV, "LAKE_TOKEN")),
        ("uri", "env:LAKE_URI", Reference(Source.ENV, "LAKE_URI")),
        ("token", "file:lake/token", Reference(Source.FILE, "lake/token")),
        ("token", "file:/run/secrets/token", Reference(Source.FILE, "/run/secrets/token")),
        ("token", "prefix env:LAKE_TOKEN", None),
        ("token", "ENV:LAKE_TOKEN", None),
        ("token", "file:", None),
        ("warehouse", "file:/data/lake", None),
        ("warehouse", "file:///data/lake", None),
        ("anything", "file:///data/lake", None),
        ("table.write.data.path", "file:/data/lake", None),
        ("table.token", "env:LAKE_TOKEN", None),
    ],
)
def test_a_reference_is_a_whole_value(key: str, value: str, expected: Reference | None) -> None:
    assert reference_of(key, value) == expected
    assert references_in({key: value}) == ({} if expected is None else {key: expected})


def test_a_reference_is_shown_and_what_only_begins_like_one_is_not() -> None:
    assert masked_properties({"token": "env:LAKE_TOKEN", "s3.secret-access-key": "file:lake/key"}) == {
        "token": "env:LAKE_TOKEN",
        "s3.secret-access-key": "file:lake/key",
    }
    assert masked_properties({"token": "env:a+b"}) == {"token": "***"}
    assert reference_of("token", "env:a+b") is not None


@pytest.mark.parametrize(
    ("key", "value", "is_misspelt"),
    [
        ("token", "ENV:LAKE_TOKEN", True),
        ("token", "Env:LAKE_TOKEN", True),
        ("token", " env:LAKE_TOKEN", True),
        ("token", "file:", True),
        ("token", "env:", False),
        ("token", "FILE:lake/token", True),
        ("token", "FILE:", True),
        ("token", "env:LAKE_TOKEN", False),
        ("token", "file:lake/token", False),
        ("token", "environment:prod", False),
        ("warehouse", "FILE:/lake", False),
        ("warehouse", "file:", False),
        ("uri", "FILE:///lake", False),
        ("table.note", "ENV:X", False),
    ],
)
def test_a_value_that_was_meant_as_a_reference_is_none(key: str, value: str, is_misspelt: bool) -> None:
    sentence = misspelt_reference(key, value)
    assert (sentence is not None) == is_misspelt
    assert sentence is None or "LAKE_TOKEN" not in sentence


HELD = {"uri": "https://lake", "token": "literal", "s3.secret-access-key": "env:KEY"}


@pytest.mark.parametrize(
    ("asked", "held", "refused"),
    [
        ({"uri": "https://lake", "token": "literal", "warehouse": "w"}, None, set()),
        ({"token": "env:PATH"}, None, {"token"}),
        ({"uri": "file:/etc/passwd", "type": "rest"}, None, {"uri"}),
        ({"py-io-impl": "os.system", "py-catalog-impl": "a.B", "s3.signer": "x"}, None, {"py-io-impl", "py-catalog-impl", "s3.signer"}),
        ({"ssl.client.cert": "/etc/x.pem", "client.profile-name": "prod"}, None, {"ssl.client.cert", "client.profile-name"}),
        # It would send what it cannot read to a host of its own.
        ({"uri": "https://evil"}, HELD, {"uri"}),
        ({"s3.endpoint": "https://evil"}, HELD, {"s3.endpoint"}),
        ({"oauth2-server-uri": "https://evil"}, HELD, {"oauth2-server-uri"}),
        ({"uri": "https://evil", "token": "mine"}, HELD, {"uri"}),
        ({"uri": "https://evil", "token": "mine", "s3.secret-access-key": "mine"}, HELD, set()),
        ({"uri": "https://evil", "token": None, "s3.secret-access-key": None}, HELD, set()),
        ({"uri": "https://lake", "token": "new"}, HELD, set()),
        # What it repeats, it does not choose.
        ({"s3.secret-access-key": "env:KEY"}, HELD, set()),
        ({"s3.secret-access-key": "env:OTHER"}, HELD, {"s3.secret-access-key"}),
        ({"table.write.target-file-size-bytes": "1"}, HELD, set()),
    ],
)
def test_a_caller_over_http_chooses_no_reference_no_code_and_no_receiver_of_secrets(
    asked: dict[str, str | None], held: dict[str, str] | None, refused: set[str]
) -> None:
    assert refused_of_caller(asked, held).keys() == refused
