"""Posts what is ready, and which jobs may start, to the one receiver of the settings, signed as Standard Webhooks says."""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import digest
from http.cookiejar import DefaultCookiePolicy
from threading import local

import requests

from compaction_pipeline.core.dependencies.center.instances import Instance
from compaction_pipeline.core.dependencies.readiness import Readiness
from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.core.insight.plain import plain

_SECONDS = 10
_PREFIX = "whsec_"
"""So begins a secret in base64, as libraries of Standard Webhooks make it."""


def key_of(secret: str) -> bytes:
    """The key that a secret stands for. Raises ConfigError, without the secret, for one that is empty or no base64 behind its prefix."""
    try:
        key = b64decode(secret.removeprefix(_PREFIX), validate=True) if secret.startswith(_PREFIX) else secret.encode()
    except ValueError:
        # Letters outside of ASCII raise no binascii.Error.
        raise ConfigError(
            f"COMPACTION_READY_CALLBACK_SECRET begins with {_PREFIX}, so base64 must follow, but what follows is none: copy the whole "
            "secret of the receiver, or take one without this beginning"
        ) from None
    if not key:
        raise ConfigError("COMPACTION_READY_CALLBACK_SECRET is empty, so anybody could sign: set it to the secret of the receiver")
    return key


def signed(message_id: str, timestamp: int, body: bytes, key: bytes) -> str:
    """The value of `webhook-signature`: version 1, the HMAC-SHA256 of the id, the time and the body, in base64."""
    content = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{b64encode(digest(key, content, sha256)).decode()}"


class Receiver:
    """The receiver of callbacks. It is asked again until it answers 2xx, so it must know a `webhook-id` that it has seen."""

    def __init__(self, url: str, secret: str, unix_seconds: Callable[[], float] = time.time) -> None:
        """Raises ConfigError for a secret that breaks its rule."""
        self._url = url
        self._key = key_of(secret)
        self._unix_seconds = unix_seconds
        self._lines = local()

    def send(self, change: str, answer: Readiness) -> None:
        """Post one answer. Raises StorageUnavailable when the receiver does not answer 2xx."""
        self._post(change, "partition.ready" if answer.ready else "partition.withdrawn", plain(answer))

    def start(self, instance: Instance) -> None:
        """Post that an instance of a job is ready to start. Raises as `send`."""
        self._post(instance.key, "instance.ready", {"key": instance.key, "instance": plain(instance)})

    def _post(self, change: str, kind: str, data: object) -> None:
        message_id = sha256(change.encode()).hexdigest()
        body = json.dumps({"type": kind, "data": data}).encode()
        # That of the attempt: receivers refuse what was signed more than five minutes ago, so that nobody can post it once more.
        timestamp = int(self._unix_seconds())
        headers = {
            "content-type": "application/json",
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signed(message_id, timestamp, body, self._key),
        }
        try:
            got = self._line().post(body, headers)
        except requests.RequestException as error:
            raise StorageUnavailable(f"COMPACTION_READY_CALLBACK_URL did not answer: {type(error).__name__}; it is asked again") from error
        if not 200 <= got.status_code < 300:
            raise StorageUnavailable(f"COMPACTION_READY_CALLBACK_URL answered HTTP {got.status_code}, not 2xx; it is asked again")

    def _line(self) -> _Line:
        """The connection of this thread: a new one for each post would cost as much as the post."""
        if not hasattr(self._lines, "line"):
            self._lines.line = _Line(self._url)
        line: _Line = self._lines.line
        return line


class _Line:
    """A connection to the receiver. What the environment says of proxies and certificates is read once: it costs half of a post."""

    def __init__(self, url: str) -> None:
        self._session = requests.Session()
        # Each post stands for itself.
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._request = self._session.prepare_request(requests.Request("POST", url))
        self._settings = self._session.merge_environment_settings(url, {}, False, None, None)

    def post(self, body: bytes, headers: Mapping[str, str]) -> requests.Response:
        request = self._request.copy()
        request.headers.update(headers)
        request.prepare_body(body, None)
        return self._session.send(request, timeout=_SECONDS, allow_redirects=False, **self._settings)
