"""How a REST catalog knows who asks: the login of a catalog, made from its flat properties.

PyIceberg has the ways; this module adds what a program that runs for weeks needs. A token of OAuth2 is renewed before it ends, and after
the catalog refused it. It is asked for with time limits, by requests that do not count as requests of a commit. Without a login no
`Authorization` is sent (PyIceberg sends `Bearer None`). No error repeats a secret.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import requests
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerFactory, BasicAuthManager, NoopAuthManager
from pyiceberg.catalog.rest.response import TokenResponse
from pyiceberg.exceptions import OAuthError
from requests.auth import AuthBase, HTTPBasicAuth

from compaction_pipeline.core.secrets.known import KnownSecrets
from compaction_pipeline.core.tables.authentication import AUTH_TYPES, SIGNING, Authentication, authentication_of
from compaction_pipeline.iceberg.catalogs.http_answers import shown_url

log = logging.getLogger(__name__)

_MARGIN_SECONDS = 60
"""A token is renewed this long before it ends, or after half of its life if that is sooner. PyIceberg has the same number."""

_Clock = Callable[[], float]


class Post(Protocol):
    """Sends a form to the service that gives tokens, within time limits, and returns its answer."""

    def __call__(self, url: str, form: Mapping[str, str], client: AuthBase | None) -> requests.Response: ...


@dataclass(frozen=True, slots=True)
class TokenQuestion:
    """The question for a token: where it is sent, its form, and the login of the client. `expires_in` counts if the answer has none."""

    url: str = field(repr=False)
    form: Mapping[str, str] = field(repr=False)
    client: AuthBase | None = field(default=None, repr=False)
    margin_seconds: float = _MARGIN_SECONDS
    expires_in: float | None = None


class BearerLogin(AuthManager):
    """A token that nobody here can renew."""

    def __init__(self, token: str) -> None:
        self._token = token

    def auth_header(self) -> str:
        return f"Bearer {self._token}"


class OAuth2Login(AuthManager):
    """A token that is got with the secret of a client. Threads may share it.

    `auth_header` raises OAuthError when the service refuses the client, and the errors of `requests` when it does not answer. While the
    token that it has is still valid, it uses that instead.
    """

    def __init__(self, question: TokenQuestion, post: Post, clock: _Clock = time.monotonic) -> None:
        self._question = question
        self._post = post
        self._clock = clock
        self._lock = threading.Lock()
        self._given: tuple[str, ...] = ()
        self._token: str | None = None
        self._secrets = KnownSecrets()
        self._renewed_at = self._ends_at = float("inf")

    def auth_header(self) -> str:
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._ends_at:
                self._renew(now)
            elif now >= self._renewed_at:
                try:
                    self._renew(now)
                except (requests.RequestException, OAuthError) as error:
                    log.warning("the token is used until it ends, because no new one is given: %s", error)
            return f"Bearer {self._token}"

    def forget(self) -> None:
        """Get a new token before the next request, because the catalog refused this one."""
        with self._lock:
            self._token = None

    def _renew(self, asked_at: float) -> None:
        asked = self._question
        answer = self._post(asked.url, asked.form, asked.client)
        if answer.status_code != 200:
            _refuse(asked.url, answer)
        try:
            given = TokenResponse.model_validate_json(answer.text)
        except ValueError:
            # The error of pydantic repeats the answer, and that may hold a token.
            raise OAuthError(f"{shown_url(asked.url)} answered something that is no token: check the URL of the token service") from None
        life = asked.expires_in if given.expires_in is None else given.expires_in
        # A catalog may repeat a token in its errors, and one about a request with the token before may come late.
        self._given = (*self._given[-1:], given.access_token)
        self._secrets.know("token", self._given)
        self._token = given.access_token
        self._ends_at = float("inf") if life is None else asked_at + life
        self._renewed_at = float("inf") if life is None else asked_at + life - min(asked.margin_seconds, life / 2)


def _refuse(url: str, answer: requests.Response) -> None:
    """Raise the error of a service that gives no token. Only its code of OAuth2 is repeated: other words may hold a secret."""
    where = f"HTTP {answer.status_code} at {shown_url(url)}"
    if answer.status_code >= 500 or answer.status_code == 429:
        raise requests.HTTPError(f"the service that gives tokens answered {where}", response=answer)
    if answer.is_redirect:
        raise OAuthError(f"no token was given: {where}, which is a redirection; register the address that it leads to")
    try:
        code = str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        code = ""
    known = ("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope")
    raise OAuthError(f"no token was given: {where}" + (f": {code}" if code in known else ""))


def login_of(properties: Mapping[str, str], token_url: str, post: Post) -> AuthManager:
    """The login that these properties mean. `token_url` is where a catalog itself gives tokens.

    A signature for AWS is made elsewhere, and replaces what this login sends. Raises ImportError if a package is missing, and ValueError
    for a property that is missing or a type of 'auth' that is unknown.
    """
    # The file of PyIceberg may hold what no definition may.
    by_type = properties.get("auth.type")
    if by_type is not None and by_type not in AUTH_TYPES:
        raise ValueError(f"'auth.type' is {by_type!r} but must be one of {', '.join(AUTH_TYPES)}")
    kind = authentication_of({key: value for key, value in properties.items() if key != SIGNING})
    try:
        return _made(kind, properties, token_url, post)
    except KeyError as missing:
        raise ValueError(f"{missing} is missing, which the login {kind.value!r} needs") from None


def _made(kind: Authentication, properties: Mapping[str, str], token_url: str, post: Post) -> AuthManager:
    if kind is Authentication.BASIC:
        return BasicAuthManager(properties["auth.basic.username"], properties["auth.basic.password"])
    if kind is Authentication.OAUTH2:
        return OAuth2Login(_question(properties, token_url), post)
    if kind is Authentication.TOKEN:
        return BearerLogin(properties["token"])
    if kind in (Authentication.GOOGLE, Authentication.ENTRA):
        return AuthManagerFactory.create(kind.value, _nested(properties, f"auth.{kind.value}."))
    return NoopAuthManager()


def _nested(properties: Mapping[str, str], prefix: str) -> dict[str, object]:
    found = {key.removeprefix(prefix): value for key, value in properties.items() if key.startswith(prefix)}
    return {key: value.split(",") if key == "scopes" else value for key, value in found.items()}


def _question(properties: Mapping[str, str], token_url: str) -> TokenQuestion:
    form = {"grant_type": "client_credentials"}
    if "credential" not in properties:
        scope = {"scope": properties["auth.oauth2.scope"]} if "auth.oauth2.scope" in properties else {}
        expires_in = properties.get("auth.oauth2.expires_in")
        return TokenQuestion(
            properties["auth.oauth2.token_url"],
            {**form, **scope},
            HTTPBasicAuth(properties["auth.oauth2.client_id"].encode(), properties["auth.oauth2.client_secret"].encode()),
            float(properties.get("auth.oauth2.refresh_margin", _MARGIN_SECONDS)),
            None if expires_in is None else float(expires_in),
        )
    client, separator, secret = properties["credential"].partition(":")
    login = {"client_id": client, "client_secret": secret} if separator else {"client_secret": client}
    asked = {key: properties[key] for key in ("audience", "resource") if properties.get(key)}
    url = properties.get("oauth2-server-uri") or token_url
    return TokenQuestion(url, {**form, **login, "scope": properties.get("scope") or "catalog", **asked})
