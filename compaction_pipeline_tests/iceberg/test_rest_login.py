"""The logins of REST catalogs: which one the properties mean, and how a token of OAuth2 is renewed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.exceptions import OAuthError
from requests import ConnectionError, HTTPError, Request, Response
from requests.auth import AuthBase

from compaction_pipeline.core.errors import AccessDenied
from compaction_pipeline.core.secrets.known import without_known_secrets
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_login import OAuth2Login, TokenQuestion, login_of
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.rest_catalog import rest_server

SECRET = "s3cr3t+/=%&word"
QUESTION = TokenQuestion("https://me:pw@login.example/token?key=1", {"grant_type": "client_credentials", "client_secret": SECRET})


class TokenService:
    """Answers with token-1, token-2, … or with what `answers` holds. `forms` are the forms that it got, `logins` their headers."""

    def __init__(self, expires_in: int | None = 300) -> None:
        self.expires_in = expires_in
        self.answers: list[tuple[int, str] | Exception] = []
        self.forms: list[Mapping[str, str]] = []
        self.logins: list[str | None] = []
        self.now = 1000.0

    def __call__(self, url: str, form: Mapping[str, str], client: AuthBase | None) -> Response:
        sent = Request("POST", url, data=form, auth=client).prepare()
        self.forms.append(form)
        self.logins.append(sent.headers.get("Authorization"))
        given = {"access_token": f"token-{len(self.forms)}", "token_type": "bearer", "expires_in": self.expires_in}
        answer = self.answers.pop(0) if self.answers else (200, json.dumps(given))
        if isinstance(answer, Exception):
            raise answer
        response = Response()
        response.status_code, response._content, response.url = answer[0], answer[1].encode(), url
        return response

    def login(self, question: TokenQuestion = QUESTION) -> OAuth2Login:
        return OAuth2Login(question, self, lambda: self.now)


def test_a_token_is_renewed_a_minute_before_it_ends() -> None:
    service = TokenService()
    login = service.login()
    assert login.auth_header() == "Bearer token-1"
    service.now += 239
    assert login.auth_header() == "Bearer token-1"
    service.now += 1
    assert login.auth_header() == "Bearer token-2"


def test_a_short_token_is_renewed_after_half_of_its_life() -> None:
    service = TokenService(expires_in=5)
    login = service.login()
    headers = []
    for _ in range(4):
        headers.append(login.auth_header())
        service.now += 1
    assert headers == ["Bearer token-1", "Bearer token-1", "Bearer token-1", "Bearer token-2"]


def test_a_token_without_an_end_is_asked_for_once_and_again_when_it_was_refused() -> None:
    service = TokenService(expires_in=None)
    login = service.login()
    login.auth_header()
    service.now += 1e9
    assert login.auth_header() == "Bearer token-1"
    login.forget()
    assert login.auth_header() == "Bearer token-2"


@pytest.mark.parametrize("failure", [ConnectionError("no route"), (503, "busy"), (401, '{"error": "invalid_client"}')])
def test_a_token_that_is_still_valid_outlives_a_service_that_gives_no_other(failure: Any) -> None:
    service = TokenService()
    login = service.login()
    login.auth_header()
    service.answers = [failure, failure]
    service.now += 290
    assert login.auth_header() == "Bearer token-1"
    service.now += 10
    with pytest.raises((ConnectionError, HTTPError, OAuthError)):
        login.auth_header()
    assert login.auth_header() == "Bearer token-4"


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            (401, json.dumps({"error": "invalid_client", "error_description": f"wrong: {SECRET}"})),
            OAuthError,
            "HTTP 401 .*: invalid_client",
        ),
        ((400, json.dumps({"error": SECRET})), OAuthError, "HTTP 400 at https://login.example/token$"),
        ((400, f"<html>{SECRET}</html>"), OAuthError, "HTTP 400"),
        ((302, ""), OAuthError, "HTTP 302"),
        ((503, SECRET), HTTPError, "HTTP 503"),
        ((200, json.dumps({"token": SECRET})), OAuthError, "answered something that is no token"),
        ((200, f"<html>{SECRET}</html>"), OAuthError, "answered something that is no token"),
    ],
)
def test_a_failing_login_tells_the_service_and_no_secret(answer: tuple[int, str], error: type[Exception], words: str) -> None:
    service = TokenService()
    service.answers = [answer]
    with pytest.raises(error, match=words) as told:
        service.login().auth_header()
    shown = f"{told.value} {told.value!r} {told.value.__cause__!r} {QUESTION}"
    assert not any(part in shown for part in (SECRET, "s3cr3t", "pw@", "key=1"))


def test_tokens_that_were_got_are_hidden_in_every_text() -> None:
    service = TokenService()
    service.answers = [(200, json.dumps({"access_token": f"eyJhbGciOi{number}.Sflkxwrj", "token_type": "bearer"})) for number in (1, 2, 3)]
    login = service.login()
    for number in (1, 2, 3):
        assert login.auth_header() == f"Bearer eyJhbGciOi{number}.Sflkxwrj"
        login.forget()
    # An error about a request with the token before may come late.
    for number in (2, 3):
        assert "Sflkx" not in without_known_secrets(f"Invalid header value b'Bearer eyJhbGciOi{number}.Sflkxwrj'")


def test_a_redirection_gets_no_secret_of_the_client(lake: Lake) -> None:
    with rest_server(lake.catalog) as server, rest_server(lake.catalog) as thief:
        server.everything = lambda call: call.answer(307, {}, {"Location": f"{thief.uri}/v1/oauth/tokens"})
        properties = {"type": "rest", "uri": server.uri, "credential": f"me:{SECRET}"}
        with pytest.raises(AccessDenied, match="which is a redirection; register the address that it leads to"):
            Catalogs(lambda name: CatalogEntry(name, properties)).catalog("lake")
        assert thief.requests == []


def asked(properties: Mapping[str, str]) -> tuple[Mapping[str, str], str | None]:
    """The form and the login with which these properties ask for a token."""
    service = TokenService()
    assert login_of(properties, "https://catalog.example/v1/oauth/tokens", service).auth_header() == "Bearer token-1"
    return service.forms[0], service.logins[0]


def test_both_forms_of_oauth2_ask_as_pyiceberg_does() -> None:
    assert asked({"credential": "me:pass:word", "audience": "lake"}) == (
        {"grant_type": "client_credentials", "client_id": "me", "client_secret": "pass:word", "scope": "catalog", "audience": "lake"},
        None,
    )
    assert asked({"credential": "only", "scope": "all"}) == (
        {"grant_type": "client_credentials", "client_secret": "only", "scope": "all"},
        None,
    )
    nested = {
        "auth.type": "oauth2",
        "auth.oauth2.client_id": "mé",
        "auth.oauth2.client_secret": SECRET,
        "auth.oauth2.token_url": "https://l/t",
    }
    form, login = asked(nested)
    assert form == {"grant_type": "client_credentials"}
    assert base64.b64decode(str(login).removeprefix("Basic ")).decode() == f"mé:{SECRET}"


def test_the_other_logins_send_what_their_properties_say() -> None:
    def sent(properties: Mapping[str, str]) -> str | None:
        return login_of(properties, "", TokenService()).auth_header()

    assert sent({}) is None
    assert sent({"auth.type": "noop"}) is None
    assert sent({"rest.sigv4-enabled": "true"}) is None
    assert sent({"token": "t"}) == "Bearer t"
    basic = sent({"auth.type": "basic", "auth.basic.username": "me", "auth.basic.password": "p:w"})
    assert basic == f"Basic {base64.b64encode(b'me:p:w').decode()}"


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"auth.type": "custom", "auth.impl": "mine.Login"}, "'auth.type' is 'custom' but must be one of noop, basic, oauth2"),
        ({"auth.type": "basic", "auth.basic.username": "me"}, "'auth.basic.password' is missing, which the login 'basic' needs"),
        ({"auth.type": "oauth2", "auth.oauth2.client_id": "me"}, "'auth.oauth2.token_url' is missing, which the login 'oauth2' needs"),
    ],
)
def test_a_login_of_pyicebergs_own_file_that_lacks_something_is_an_error_and_never_no_login(
    properties: Mapping[str, str], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        login_of(properties, "", TokenService())
