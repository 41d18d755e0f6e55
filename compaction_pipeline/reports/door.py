"""Sends JSON to the HTTP service, and tries again while the service cannot answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import requests

_TIMEOUT = (5, 15)
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_PAUSE = 10.0


class ReportError(Exception):
    """A report was not delivered, or the server refused it. The message says why.

    `refused_with` is the status with which the server refused it; None when it may be taken later.
    """

    def __init__(self, message: str, refused_with: int | None = None) -> None:
        super().__init__(message)
        self.refused_with = refused_with


class Door:
    """The HTTP service, for one token. Several threads may use it at once."""

    def __init__(
        self, server: str, token: str, *, ca_file: str | None = None, tries: int = 4, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        """`server` is the URL without a path. The certificates in `ca_file`, in PEM, are trusted.

        What is sent is tried at most `tries` times. When the server does not answer, that takes a minute and a half at most.
        """
        self._url = server.rstrip("/")
        # A token that is none, None too, must not end the writer. Each report says so.
        self._token = str(token or "").strip()
        self._verify: bool | str = ca_file if ca_file is not None else True
        self._tries = tries
        self._sleep = sleep

    def send(self, path: str, body: bytes, content_type: str = "application/json") -> Any:
        """Send this body, and return the JSON value of the answer. Raises ReportError."""
        if not self._token or not self._token.isascii() or not self._token.isprintable() or " " in self._token:
            # The token is a secret. A message of the library would show it.
            raise ReportError("the token must be one word, as `compaction-pipeline token add` prints it on stdout", 401)
        failure, url, headers = "", f"{self._url}{path}", {"Content-Type": content_type}
        for number in range(self._tries):
            pause = min(_LONGEST_PAUSE, 2.0**number) * random.uniform(0.5, 1)
            try:
                answer = requests.post(
                    url, body, headers=headers, auth=self._authorized, timeout=_TIMEOUT, allow_redirects=False, verify=self._verify
                )
            except requests.RequestException as error:
                failure = f"the server did not answer: {error}"
            else:
                if answer.status_code == 200:
                    return _value(answer)
                failure = f"the server answered {answer.status_code}: {_detail(answer)}"
                if answer.status_code not in _TRY_AGAIN:
                    raise ReportError(failure, answer.status_code)
                pause = max(pause, min(_LONGEST_PAUSE, _asked_pause(answer)))
            if number + 1 < self._tries:
                self._sleep(pause)
        raise ReportError(failure)

    def _authorized(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        # A header alone would be replaced by what ~/.netrc holds for the host.
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _value(answer: requests.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        raise ReportError("what answered is not the service: its answer is no JSON", answer.status_code) from None


def _asked_pause(answer: requests.Response) -> float:
    """Return the seconds that the server asks to wait; 0 when it asks for nothing that can be read."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _detail(answer: requests.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or str(answer.reason)
