"""Gates for the proxies: each lets in only requests with the right login, as the catalogs and storages of the world do."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs

import pytest

from compaction_pipeline_tests.real_services.fault_proxy import Gate, Status, fault_proxy

TOKENS = "/v1/oauth/tokens"


def _refused(code: int) -> Status:
    kind = "NotAuthorizedException" if code == 401 else "AuthenticationTimeoutException"
    error = {"error": {"message": "the login is missing, wrong or has ended", "type": kind, "code": code}}
    return Status(code, json.dumps(error), "application/json")


Asks = Callable[[str, str, Mapping[str, str], bytes], bool]


def once(asks: Asks, act: Callable[[], object]) -> Gate:
    """A gate that lets everything in, and acts before the first request that asks for this."""
    left = [act]

    def gate(method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        if left and asks(method, path, headers, body):
            left.pop()()
        return None

    return gate


def only_with(authorization: str) -> Gate:
    """A gate that demands this header."""
    return lambda method, path, headers, body: None if headers.get("Authorization") == authorization else _refused(401)


@dataclass
class OAuth2Gate:
    """Gives the client `me` with the secret `secret` tokens that end after `life_seconds`, and demands one that has not ended.

    With `tells_end` the answer says when a token ends. Refusals are answered with `code`.
    """

    secret: str
    life_seconds: float = 3600
    tells_end: bool = True
    code: int = 401
    given: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    _ends: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        with self._lock:
            if path == TOKENS:
                return self._token(headers, body)
            token = (headers.get("Authorization") or "").removeprefix("Bearer ")
            if self._ends.get(token, 0) > time.monotonic():
                return None
            self.refused.append(f"{method} {path}")
            return _refused(self.code)

    def _token(self, headers: Mapping[str, str], body: bytes) -> Status:
        form = {key: values[0] for key, values in parse_qs(body.decode()).items()}
        basic = f"Basic {base64.b64encode(f'me:{self.secret}'.encode()).decode()}"
        in_form = (form.get("client_id"), form.get("client_secret")) == ("me", self.secret)
        if form.get("grant_type") != "client_credentials" or not (in_form or headers.get("Authorization") == basic):
            return Status(401, '{"error": "invalid_client"}', "application/json")
        token = f"secret-token-{len(self.given) + 1}"
        self.given.append(token)
        self._ends[token] = time.monotonic() + self.life_seconds
        end = {"expires_in": int(self.life_seconds)} if self.tells_end else {}
        return Status(200, json.dumps({"access_token": token, "token_type": "bearer", **end}), "application/json")

    def end_tokens(self) -> None:
        """End all tokens that were given so far."""
        with self._lock:
            self._ends.clear()


@dataclass
class SigV4Gate:
    """Demands requests that are signed for `service` with one of `keys` (access keys with their secrets). Counts those let in by key."""

    keys: dict[str, str]
    service: str = "execute-api"
    let_in: list[str] = field(default_factory=list)

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        # The library comes with moto, which other tests do not need.
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        parts = dict(
            part.strip().split("=", 1) for part in (headers.get("Authorization") or "").partition(" ")[2].split(",") if "=" in part
        )
        key, _, region, service, _ = (*parts.get("Credential", "").split("/"), *5 * ("",))[:5]
        if key not in self.keys or service != self.service:
            return _refused(401)
        named = parts["SignedHeaders"].split(";")
        signed = AWSRequest(method, f"http://{headers['Host']}{path}", {name: headers[name] for name in named if name != "host"}, body)
        signed.context["timestamp"] = headers["X-Amz-Date"]
        signer = SigV4Auth(Credentials(key, self.keys[key]), service, region)
        wanted = signer.signature(signer.string_to_sign(signed, signer.canonical_request(signed)), signed)
        if wanted != parts["Signature"]:
            return _refused(401)
        self.let_in.append(key)
        return None


@dataclass
class MachineKeys:
    """The service from which a container gets its keys. It gives new ones at each request, and `gate` lets only the newest in.

    The keys say that they end in five minutes, so a client asks for new ones before each request.
    """

    gate: SigV4Gate
    secret: str
    given: int = 0

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status:
        self.given += 1
        key = f"AK{self.given}"
        self.gate.keys = {key: self.secret}
        ends = datetime.now(timezone.utc) + timedelta(minutes=5)
        answer = {"AccessKeyId": key, "SecretAccessKey": self.secret, "Token": "t", "Expiration": ends.isoformat()}
        return Status(200, json.dumps(answer), "application/json")


@contextmanager
def keys_of_this_machine(gate: SigV4Gate, secret: str, environment: pytest.MonkeyPatch) -> Iterator[MachineKeys]:
    """Let AWS's client find such a service in the environment, and no other keys, until the block ends."""
    # No server is behind this proxy. Its gate answers everything.
    with fault_proxy(1) as service, environment.context() as changed:
        service.gate = keys = MachineKeys(gate, secret)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            changed.delenv(name, raising=False)
        changed.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{service.url}/keys")
        yield keys


@dataclass
class VendedKeys:
    """Adds new credentials to each answer of a catalog that holds a table, and lets only these in at the S3.

    Each answer has its own session token. `end` ends those that were given so far: S3 then answers `ExpiredToken`.
    """

    properties: Mapping[str, str]
    """The access key and the secret that the S3 itself accepts."""
    tells_end: bool = True
    given: int = 0
    refused: int = 0
    _first_valid: int = 1

    def rewrite(self, method: str, path: str, content: bytes) -> bytes:
        if method != "GET" or "/tables/" not in path:
            return content
        answer = json.loads(content)
        self.given += 1
        end = str(int(datetime.now(timezone.utc).timestamp() + 30) * 1000)
        told = {"s3.session-token-expires-at-ms": end} if self.tells_end else {}
        answer["config"] = {**answer.get("config", {}), **self.properties, "s3.session-token": f"session-{self.given}", **told}
        return json.dumps(answer).encode()

    def gate(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        session = (headers.get("x-amz-security-token") or "").removeprefix("session-")
        if session.isdigit() and int(session) >= self._first_valid:
            return None
        self.refused += 1
        return Status(400, "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")

    def end(self) -> None:
        """End all credentials that were given so far."""
        self._first_valid = self.given + 1


@dataclass
class GlueVersions:
    """Lets one update of each version of a table in, as Glue itself does. moto takes every update, whatever version it names."""

    used: set[tuple[str, str, str]] = field(default_factory=set)
    refused: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Status | None:
        if not (headers.get("X-Amz-Target") or "").endswith(".UpdateTable"):
            return None
        asked = json.loads(body)
        version = asked["DatabaseName"], asked["TableInput"]["Name"], asked["VersionId"]
        with self._lock:
            if version not in self.used:
                self.used.add(version)
                return None
            self.refused += 1
        error = {"__type": "ConcurrentModificationException", "Message": "the table has another version by now"}
        return Status(400, json.dumps(error), "application/x-amz-json-1.1")
