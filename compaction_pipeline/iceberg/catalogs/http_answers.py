"""Reads from an error how a REST catalog answered: the HTTP status, the URL and the message.

With these a person knows whether the uri is wrong, a login is missing, or the server is ill.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg.catalog.rest.response import ErrorResponse
from requests import HTTPError

from compaction_pipeline.core.secrets.known import without_known_secrets


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that reports an error. `url` has no login and no query. `said` is the catalog's own message; None if it sent none."""

    status: int
    url: str
    said: str | None

    def __str__(self) -> str:
        return f"HTTP {self.status} at {self.url}" + (f": {self.said}" if self.said else "")


def http_answer(error: BaseException) -> HttpAnswer | None:
    """The answer behind an error of PyIceberg or requests. None if there was no answer."""
    failed = error if isinstance(error, HTTPError) else error.__cause__
    if not isinstance(failed, HTTPError) or failed.response is None:
        return None
    return HttpAnswer(failed.response.status_code, shown_url(str(failed.response.url)), _said(failed.response.text))


def shown_url(url: str) -> str:
    """A URL without login and query, because both may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _said(text: str) -> str | None:
    """The `type: message` of an error in the form of Iceberg's specification. None for other texts, for example the page of a proxy."""
    try:
        answer = ErrorResponse.model_validate_json(text).error
    except ValidationError:
        return None
    # A server may repeat the token that it was sent.
    return without_known_secrets(" ".join(f"{answer.type}: {answer.message}".split()))
