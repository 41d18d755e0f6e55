"""Reports commits to the HTTP service.

A report is a hint: without it the table is looked at a little later. So a report that cannot be delivered never ends the writer's own work,
unless the writer asks for that.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

import requests

log = logging.getLogger(__name__)

MOST_PARTITIONS = 1_000
"""The server takes so many partitions with one report."""
MOST_BYTES = 512 * 1024
"""The server takes a report of this size. Of a larger one, the partitions with the fewest files are left out."""
_TIMEOUT = (5, 15)
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_LONGEST_PAUSE = 10.0


class ReportError(Exception):
    """A report was not delivered, or the server refused it. The message says why."""


@dataclass(frozen=True)
class Answer:
    """`accepted` is false when the server knows the commit already. `why` is a sentence for people."""

    accepted: bool
    why: str


class CommitReporter:
    """Reports commits to one server. Several threads may use it at once."""

    def __init__(
        self, server: str, token: str, *, ca_file: str | None = None, tries: int = 4, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`server` is the URL without a path, and `token` has the role writer. The certificates in `ca_file`, in PEM, are trusted.

        A report is tried at most `tries` times. When the server does not answer, that takes a minute and a half at most.
        """
        self._url = server.rstrip("/")
        # A token that is none, None too, must not end the writer. Each report says so.
        self._token = str(token or "").strip()
        self._verify: bool | str = ca_file if ca_file is not None else True
        self._tries = tries
        self._sleep = sleep

    def report_commit(
        self,
        table: str,
        snapshot_id: int,
        sequence_number: int = 0,
        added: Mapping[str, int] | None = None,
        *,
        must_arrive: bool = False,
    ) -> Answer | None:
        """Report that a commit has landed. Return the server's answer, or None when the report did not arrive.

        `table` is `catalog.namespace.table`. Its catalog is named as it is registered with the server. `added` is how many files the commit
        added to each partition, e.g. `{"day=2026-11-22": 12}`, or `{"": 12}` without partitions.

        With `must_arrive`, a report that did not arrive raises ReportError. Without it, the log gets a warning.
        """
        try:
            body = _body(snapshot_id, sequence_number, added or {})
            return self._delivered(f"{self._url}/api/v1/tables/{quote(table, safe='')}/commits", body)
        except Exception as error:
            # Whatever went wrong: a hint must not end the work of the writer that gives it.
            if must_arrive:
                raise error if isinstance(error, ReportError) else ReportError(f"the report was not delivered: {error}") from error
            log.warning("commit %s of table %s not reported: %s", snapshot_id, table, error)
            return None

    def _delivered(self, url: str, body: bytes) -> Answer:
        if not self._token or not self._token.isascii() or not self._token.isprintable() or " " in self._token:
            # The token is a secret. A message of the library would show it.
            raise ReportError("the token must be one word, as `compaction-pipeline token add --role writer` prints it on stdout")
        failure, headers = "", {"Content-Type": "application/json"}
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
                    value = answer.json()
                    return Answer(bool(value["accepted"]), str(value["why"]))
                failure = f"the server answered {answer.status_code}: {_detail(answer)}"
                if answer.status_code not in _TRY_AGAIN:
                    break
                pause = max(pause, min(_LONGEST_PAUSE, _asked_pause(answer)))
            if number + 1 < self._tries:
                self._sleep(pause)
        raise ReportError(failure)

    def _authorized(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        # A header alone would be replaced by what ~/.netrc holds for the host.
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _body(snapshot_id: int, sequence_number: int, added: Mapping[str, int]) -> bytes:
    """Return a report in JSON, with as many of the partitions that got the most files as the server takes."""
    largest = sorted(added.items(), key=lambda item: -item[1])[:MOST_PARTITIONS]
    while True:
        told = [{"partition": partition, "files": files} for partition, files in largest]
        body = json.dumps({"snapshot_id": snapshot_id, "sequence_number": sequence_number, "added": told}).encode()
        if len(body) <= MOST_BYTES:
            return body
        # Names have different lengths, so how many fit is found by trying.
        largest = largest[: len(largest) * 9 // 10]


def _asked_pause(answer: requests.Response) -> float:
    """Return the seconds that the server asks to wait; 0 when it asks for nothing that can be read."""
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0


def _detail(answer: requests.Response) -> str:
    try:
        return str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return answer.text[:200] or str(answer.reason)
