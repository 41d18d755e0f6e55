"""Which texts hide a secret that the process knows, in all the forms in which libraries write it, and which texts stay as they are."""

from __future__ import annotations

import base64
import html
import json
import time
from urllib.parse import quote, quote_plus

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.secrets.known import KnownSecrets, without_known_secrets, without_secrets

SECRET = 'Zq7+/x=%&v"9Lm\\2Kp+T/w=%&u8Rj'


@pytest.fixture
def known() -> KnownSecrets:
    known = KnownSecrets()
    known.know("lake", [SECRET])
    return known


def parts_of(secret: str, length: int = 12) -> set[str]:
    return {secret[at : at + length] for at in range(len(secret) - length + 1)}


FORMS = {
    "plain": SECRET,
    "url": quote(SECRET),
    "url whole": quote(SECRET, safe=""),
    "url lower": quote(SECRET, safe="").replace("%2B", "%2b").replace("%2F", "%2f"),
    "form": quote_plus(SECRET),
    "json": json.dumps(SECRET),
    "python": repr(SECRET),
    "html": html.escape(SECRET),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "basic": base64.b64encode(f"me:{SECRET}".encode()).decode(),
    "basic of two": base64.b64encode(f"ab:{SECRET};".encode()).decode(),
    "base64 in the middle": base64.b64encode(f"user:{SECRET} etc".encode()).decode(),
    "urlsafe": base64.urlsafe_b64encode(f"x{SECRET}".encode()).decode(),
    "cut": SECRET[3:17],
    "cut behind": SECRET[:14],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_known_secret_is_hidden_in_each_form(known: KnownSecrets, form: str) -> None:
    shown = masked_text(f"the server said: Bearer {FORMS[form]}, and no more")
    assert shown.startswith("the server said: Bearer ")
    assert "***" in shown
    assert shown.endswith(", and no more")
    kept = shown.removeprefix("the server said: Bearer ").removesuffix(", and no more")
    assert not parts_of(FORMS[form]) & parts_of(kept), kept


def test_each_part_of_twelve_characters_is_hidden_wherever_it_stands(known: KnownSecrets) -> None:
    for part in parts_of(SECRET):
        assert without_known_secrets(f"<{part}>") == "<***>"
    for part in parts_of(SECRET, 11):
        assert without_known_secrets(f"<{part}>") == f"<{part}>"


def test_an_error_of_ours_says_no_known_secret(known: KnownSecrets) -> None:
    error = ConfigError(f"catalog 'lake': the server answered 401 for {quote(SECRET, safe='')}")
    assert str(error) == "catalog 'lake': the server answered 401 for ***"
    assert str(ConfigError("postgresql://me:pw@host/db is wrong")) == "postgresql://me:***@host/db is wrong"


@pytest.mark.parametrize("value", ["short", "1234567", "password", "Postgres", "warehouse", "changeit", "", "MINIOADMIN"])
def test_short_values_and_words_are_hidden_by_their_keys_alone(value: str) -> None:
    known = KnownSecrets()
    known.know("lake", [value])
    text = f"the password of postgres is in the warehouse, 1234567 short changeit MINIOADMIN {value}"
    assert without_known_secrets(text) == text
    assert known.values == ()


def test_eight_characters_are_hidden_whole(known: KnownSecrets) -> None:
    known.know("lake", ["pa55w0rd"])
    assert without_known_secrets("pa55w0rd, pa55w0r and xpa55w0rdx") == "***, pa55w0r and x***x"


def test_a_document_hides_its_secrets_and_no_words(known: KnownSecrets) -> None:
    key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC"
    document = f'{{"type": "service_account", "project_id": "lake-production", "private_key": "-----BEGIN PRIVATE KEY-----\\n{key}"}}'
    known.know("lake", [document])
    assert without_known_secrets("a service_account of lake-production has no PRIVATE KEY") == (
        "a service_account of lake-production has no PRIVATE KEY"
    )
    assert key[4:20] not in without_known_secrets(f"bad key {key[:24]}")
    assert without_known_secrets(f"it is {document}") == "it is ***"


def test_what_a_catalog_had_is_forgotten_with_it(known: KnownSecrets) -> None:
    known.know("other", [SECRET, "Other1234567"])
    known.forget("lake")
    assert without_known_secrets(f"{SECRET} Other1234567") == "*** ***"
    known.know("other", ["Other1234567"])
    assert without_known_secrets(f"{SECRET} Other1234567") == f"{SECRET} ***"
    known.forget("other")
    known.forget("nobody")
    assert without_known_secrets(f"{SECRET} Other1234567") == f"{SECRET} Other1234567"


def test_what_a_part_of_the_process_knew_is_forgotten_when_it_is_gone() -> None:
    known = KnownSecrets()
    known.know("lake", [SECRET])
    assert without_known_secrets(SECRET) == "***"
    del known
    assert without_known_secrets(SECRET) == SECRET


def test_only_so_many_owners_are_known() -> None:
    known = KnownSecrets(most=2)
    for number in range(4):
        known.know(f"table {number}", [f"token-{number}-abcdef"])
    assert [value.text for value in known.values] == ["token-2-abcdef", "token-3-abcdef"]


def test_secrets_that_have_parts_in_common_are_hidden_whole() -> None:
    known = KnownSecrets()
    known.know("lake", [f"begin-one-{SECRET}-end-one", f"begin-two-{SECRET}-end-two"])
    assert without_known_secrets(f"<begin-one-{SECRET}-end-one> <begin-two-{SECRET}-end-two>") == "<***> <***>"


def test_a_long_token_is_hidden_in_whole_and_in_parts() -> None:
    known = KnownSecrets()
    token = base64.b64encode(bytes(number * 7 % 251 for number in range(900))).decode()
    known.know("vended", [token])
    assert without_known_secrets(f"no access: {token}!") == "no access: ***!"
    assert without_known_secrets(f"no access: {token[500:540]}!") == "no access: ***!"
    assert without_known_secrets("no access at all") == "no access at all"


def test_masking_costs_little() -> None:
    known = KnownSecrets()
    for number in range(10):
        known.know(f"catalog {number}", [f"{number}+{SECRET}"])
    line = "table=lake.shop.orders task=3f0c2b7a9d1e attempt=1 merged 12 files of 3.4 MiB into s3://lake/shop/orders/data/dt=2024-05-01/x.parquet"
    without_known_secrets(line)
    began = time.perf_counter()
    for _ in range(200):
        assert without_known_secrets(line) is line
    # About 30 µs on one core. The bound is far above it, so that a busy machine does not break it.
    assert (time.perf_counter() - began) / 200 < 0.002


def test_an_error_that_lets_nobody_set_anything_loses_its_secrets_too(known: KnownSecrets) -> None:
    """The errors of Thrift are such ones."""

    class Immutable(Exception):
        def __setattr__(self, *args: object) -> None:
            raise TypeError("can't modify immutable instance")

    error = Immutable(f"said {SECRET}")
    BaseException.__setattr__(error, "__cause__", ValueError(f"below {SECRET}"))
    without_secrets(error)
    assert SECRET not in f"{error} {error.__cause__}"
