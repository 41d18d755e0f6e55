"""PyIceberg's REST catalog with five rules of our own.

- No request waits for ever. PyIceberg sets no time limit.
- The request of a commit is sent once, and its answer is noted. PyIceberg sends it again after 401 and 419. After an answer that proves
  that nothing was done it is sent anew, if a new token can be got.
- All logins have flat properties, and a token that ends is renewed (`rest_login.py`).
- Metadata holds every snapshot. PyIceberg leaves snapshots out if a property says so.
- A token that the catalog gave for one table is not sent with requests for another. PyIceberg keeps it in the headers of all later
  requests.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from http.client import NOT_MODIFIED, OK
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from pydantic import Field
from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.rest import SIGV4, SNAPSHOT_LOADING_MODE, Endpoint, Endpoints, RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager, AuthManagerAdapter
from pyiceberg.catalog.rest.response import _handle_non_200_response
from pyiceberg.catalog.rest.scan_planning import StorageCredential
from pyiceberg.exceptions import AuthorizationExpiredError, NoSuchTableError, UnauthorizedError
from pyiceberg.io import FileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, IcebergBaseModel, Identifier, Properties
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.auth import AuthBase
from requests.exceptions import ConnectionError, ConnectTimeout, HTTPError, RequestException, Timeout
from tenacity import stop_after_attempt

from compaction_pipeline.core.commit.answers import Answer, of_http
from compaction_pipeline.core.tables.authentication import AUTH_KEYS
from compaction_pipeline.iceberg.catalogs.http_answers import shown_url
from compaction_pipeline.iceberg.catalogs.rest_login import OAuth2Login, login_of
from compaction_pipeline.iceberg.catalogs.told_properties import told_by_server


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How many seconds a catalog may take to accept a connection, to send the next part of an answer, and to answer a commit.

    Dagster cannot tell a tick to end, so the first two are short. It is worth waiting for the answer to a commit.
    """

    connect_seconds: float = 5
    read_seconds: float = 12
    commit_seconds: float = 60


@dataclass
class Sends:
    """How a request was answered each time it was sent: its HTTP status, or None if no whole answer has come."""

    statuses: list[int | None] = field(default_factory=list)


class RawTableResponse(IcebergBaseModel):
    """The answer to a request for a table. The metadata in it is not parsed."""

    metadata_location: str | None = Field(alias="metadata-location", default=None)
    metadata: dict[str, Any]
    config: Properties = Field(default_factory=dict)
    storage_credentials: list[StorageCredential] = Field(alias="storage-credentials", default_factory=list)


@dataclass(frozen=True)
class TableAnswer:
    """What a catalog answered about a table: its metadata, the place of its file if it was told, what opens its files, and the ETag."""

    metadata: Mapping[str, Any]
    location: str | None
    io: FileIO
    etag: str | None


SILENCE_SECONDS = 10
"""A catalog that left a question without an answer is asked nothing for this time. So a tick over 200 tables waits for it only once."""

_silent_until: dict[str, float] = {}
"""By host, the time of the monotonic clock until which nothing is asked. It holds for the whole process, because each tick opens its
catalogs again."""

_SENDS: ContextVar[Sends | None] = ContextVar("sends", default=None)

_ETAGS: ContextVar[list[str] | None] = ContextVar("etags", default=None)


@contextmanager
def counted_sends() -> Iterator[Sends]:
    """Note every request that a REST catalog sends in this block and this thread."""
    sends = Sends()
    token = _SENDS.set(sends)
    try:
        yield sends
    finally:
        _SENDS.reset(token)


@contextmanager
def noted_etag() -> Iterator[list[str]]:
    """Note the `ETag` of each answer that a REST catalog gives in this block and this thread."""
    etags: list[str] = []
    token = _ETAGS.set(etags)
    try:
        yield etags
    finally:
        _ETAGS.reset(token)


def use_bounded_rest_catalogs(limits: RequestLimits) -> None:
    """Make PyIceberg open our REST catalog, for `type=rest` and where the form of 'uri' tells the type."""
    AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, properties: BoundedRestCatalog(name, limits, **properties)


class BoundedRestCatalog(RestCatalog):
    """A REST catalog that follows the rules of this module. It raises the same errors as PyIceberg's REST catalog."""

    def __init__(self, name: str, limits: RequestLimits, **properties: str) -> None:
        self._limits = limits
        self._made: tuple[object, AuthManager] | None = None
        super().__init__(name, **_flat(properties))
        # If only referenced snapshots were loaded, an older commit of ours would look as if it had never been made.
        self.properties[SNAPSHOT_LOADING_MODE] = "all"

    def _fetch_config(self) -> None:
        own = dict(self.properties)
        super()._fetch_config()
        self.properties = told_by_server(self.properties, own)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return super()._load_file_io(told_by_server(properties), location)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: Any) -> Table:
        # PyIceberg lets the properties of the table itself say how its files are opened. A copy without them has the same answer of the
        # server.
        bare = table_response.model_copy(update={"metadata": table_response.metadata.model_copy(update={"properties": {}})})
        table = super()._response_to_table(identifier_tuple, bare)
        table.metadata = table_response.metadata
        return table

    @property
    def endpoints(self) -> Collection[Endpoint]:
        """The endpoints that the catalog's answer to `GET /v1/config` names, or PyIceberg's own list where it names none."""
        return self._supported_endpoints

    def asked(self, url: str, parameters: Mapping[str, str]) -> Any:
        """Return what the catalog answers to a GET with these parameters, as JSON. Raises HTTPError, and what `requests` raises."""
        response = self._session.get(url, params=dict(parameters))
        response.raise_for_status()
        return response.json()

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        try:
            return self._sent_once(table, requirements, updates)
        except (UnauthorizedError, AuthorizationExpiredError):
            sends = _SENDS.get()
            self._refresh_token()
            if sends is None or not isinstance(self._auth_manager, OAuth2Login) or of_http(sends.statuses) is not Answer.REFUSED:
                raise
            # The answer proves that the request did nothing. So the next one is the only one that may be carried out.
            sends.statuses.clear()
        return self._sent_once(table, requirements, updates)

    def _sent_once(self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> CommitTableResponse:
        once = cast("Any", RestCatalog.commit_table).retry_with(stop=stop_after_attempt(1))
        # PyIceberg writes the token of the table into the headers of the session. This copy has its own headers, and shares connections and
        # login.
        alone = copy(self)
        alone._session = copy(self._session)
        alone._session.headers = self._session.headers.copy()
        return cast("CommitTableResponse", once(alone, table, requirements, updates))

    def _create_session(self) -> Session:
        # PyIceberg calls this twice: to ask for the configuration, and afterwards with what the catalog has configured.
        session = OneAddress()
        self._config_headers(session)
        cert, key = self.properties.get("ssl.client.cert"), self.properties.get("ssl.client.key")
        session.cert = (cert, key) if cert and key else cert
        self._auth_manager = self._login(session)
        session.auth = AuthManagerAdapter(self._auth_manager)
        if str(self.properties.get(SIGV4, "")).lower() == "true":
            self._init_sigv4(session)
        return session

    def _login(self, session: Session) -> AuthManager:
        """The login of the catalog. It stays the same while its properties do, and so does its token."""
        url = self.url(Endpoints.get_token, prefixed=False)
        wanted = url, session.cert, {key: value for key, value in self.properties.items() if key.startswith(AUTH_KEYS)}
        if self._made is None or self._made[0] != wanted:
            self._made = wanted, login_of(self.properties, url, partial(self._asked_for_token, session.cert))
        return self._made[1]

    def _asked_for_token(self, cert: Any, url: str, form: Mapping[str, str], client: AuthBase | None) -> Response:
        with Session() as session:
            session.cert = cert
            for prefix, adapter in list(session.adapters.items()):
                session.mount(prefix, BoundedAdapter(adapter, self._limits, False, self._authorities))
            # The form holds the client's secret, and a redirection would take it to an address that nobody registered.
            return session.post(url, data=form, auth=client, allow_redirects=False)

    def _refresh_token(self) -> None:
        # PyIceberg calls this when the catalog has answered 401 or 419, before it asks again.
        if isinstance(self._auth_manager, OAuth2Login):
            self._auth_manager.forget()

    def asked_for_table(self, identifier: Identifier, etag: str | None = None) -> TableAnswer | None:
        """Ask for a table, and take its metadata as it is. None when the catalog says that nothing has changed since it gave this `etag`.

        Raises NoSuchTableError, and what PyIceberg's `load_table` raises.
        """
        try:
            return self._asked_for_table(identifier, etag)
        except (UnauthorizedError, AuthorizationExpiredError):
            self._refresh_token()
            return self._asked_for_table(identifier, etag)

    def _asked_for_table(self, identifier: Identifier, etag: str | None) -> TableAnswer | None:
        response = self._asked_for(identifier, etag)
        if etag is not None and response.status_code == NOT_MODIFIED:
            return None
        try:
            response.raise_for_status()
            if response.status_code != OK:
                raise HTTPError(f"HTTP {response.status_code} at {shown_url(response.url)} to a request for a table", response=response)
        except HTTPError as error:
            _handle_non_200_response(error, {404: NoSuchTableError})
        told = RawTableResponse.model_validate_json(response.content)
        credentials = self._resolve_storage_credentials(told.storage_credentials, told.metadata_location)
        io = self._load_file_io({**told.config, **credentials}, told.metadata_location)
        return TableAnswer(told.metadata, told.metadata_location, io, response.headers.get("ETag"))

    def _asked_for(self, identifier: Identifier, etag: str | None) -> Response:
        headers = {"If-None-Match": etag} if etag is not None else {}
        url = self.url(Endpoints.load_table, prefixed=True, **self._split_identifier_for_path(identifier))
        return self._session.get(url, params={"snapshots": self.properties[SNAPSHOT_LOADING_MODE]}, headers=headers)

    @property
    def _authorities(self) -> str | None:
        return self.properties.get("ssl.cabundle") or None

    def unchanged(self, identifier: Identifier, location: str, etag: str | None) -> tuple[bool, str | None]:
        """Ask whether the newest metadata of a table is at this location, and return the answer with the ETag of it.

        `etag` is that of an earlier answer which named this location; the catalog then need not send the metadata again. The metadata is
        not read here: a table that has moved is loaded by `load_table`. Only looks that find out what has moved ask this. Commits and works
        of upkeep load tables without a condition.
        """
        response = self._asked_for(identifier, etag)
        if response.status_code == NOT_MODIFIED:
            return etag is not None, etag
        if response.status_code != OK:
            # The load that follows says what is wrong, and gets a new token if that has ended.
            return False, None
        answer = json.loads(response.text)
        named = answer.get("metadata-location") if isinstance(answer, dict) else None
        return named == location, response.headers.get("ETag") if named == location else None

    def _config_headers(self, session: Session) -> None:
        # PyIceberg calls this first for a new session, before it asks for a token.
        for prefix, adapter in list(session.adapters.items()):
            session.mount(prefix, BoundedAdapter(adapter, self._limits, authorities=self._authorities))
        super()._config_headers(session)

    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        for prefix, adapter in list(session.adapters.items()):
            if not isinstance(adapter, BoundedAdapter):
                session.mount(prefix, BoundedAdapter(adapter, self._limits, authorities=self._authorities))


def _flat(properties: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The properties with dots in place of levels, as a file of PyIceberg may have them in `auth` and `ssl`."""
    found: dict[str, Any] = {}
    for key, value in properties.items():
        found.update(_flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value})
    return found


class OneAddress(Session):
    """A session that follows no redirection to another address. `requests` takes only `Authorization` out of such a request, and other
    headers of a catalog may hold secrets too."""

    def get_redirect_target(self, resp: Response) -> str | None:
        """Where an answer leads to; None for one that is no redirection. Raises RequestException when that is another address."""
        target = super().get_redirect_target(resp)
        if target is not None and self.should_strip_auth(resp.url, urljoin(resp.url, target)):
            raise RequestException(
                f"the catalog sends requests on to another address, {shown_url(urljoin(resp.url, target))}; register that address"
            )
        return target


class BoundedAdapter(BaseAdapter):
    """Sends requests through another adapter, within time limits. It reads each answer to its end, and notes it if it is `counted`. It
    raises the errors of `requests`."""

    def __init__(self, inner: BaseAdapter, limits: RequestLimits, counted: bool = True, authorities: str | None = None) -> None:
        """`authorities` is a file of those that certify the server. None means those of the environment, or of this machine."""
        super().__init__()
        self._inner = inner
        self._counted = counted
        self._authorities = authorities
        self._limits = limits
        if isinstance(inner, HTTPAdapter):
            # Only a connection that could not be made is tried again. Any other request may have reached the server.
            inner.max_retries = inner.max_retries.new(other=0)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: dict[str, str] | None = None,
    ) -> Response:
        sends = _SENDS.get() if self._counted else None
        # `requests` lets the environment (REQUESTS_CA_BUNDLE) win over the session.
        verify = self._authorities or verify
        host = urlsplit(str(request.url)).netloc
        rest = _silent_until.get(host, 0.0) - time.monotonic()
        if rest > 0:
            url = shown_url(str(request.url))
            raise ConnectTimeout(f"{url} timed out a moment ago; it is asked again in {rest:.0f} s", request=request)
        if sends is not None:
            sends.statuses.append(None)
        seconds = self._limits.read_seconds if sends is None else self._limits.commit_seconds
        try:
            response = self._inner.send(request, stream, timeout or (self._limits.connect_seconds, seconds), verify, cert, proxies)
            if not stream:
                # Read all of the answer: if it is cut off, it does not count.
                _ = response.content
        except (Timeout, ConnectionError) as error:
            # If an answer stops before its end, `requests` raises ConnectionError.
            if sends is None and (isinstance(error, Timeout) or "timed out" in str(error)):
                _silent_until[host] = time.monotonic() + SILENCE_SECONDS
            raise
        if sends is not None:
            sends.statuses[-1] = response.status_code
        etags = _ETAGS.get()
        if etags is not None and (etag := response.headers.get("ETag")) is not None:
            etags.append(etag)
        return response

    def close(self) -> None:
        self._inner.close()
