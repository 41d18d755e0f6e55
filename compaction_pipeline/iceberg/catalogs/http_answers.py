"""Reads out of an error how a REST catalog answered a question: with which HTTP status, where, and what it said.

A catalog that answered did not stay silent: a person who is told its status and URL knows whether the uri is wrong, a login is missing,
or the server is ill.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from pydantic import ValidationError
from pyiceberg.catalog.rest.response import ErrorResponse
from requests import HTTPError


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that is an error. `url` is without login and query; `said` is the catalog's own sentence, None where it sent none."""

    status: int
    url: str
    said: str | None

    def __str__(self) -> str:
        return f"HTTP {self.status} at {self.url}" + (f": {self.said}" if self.said else "")


def http_answer(error: BaseException) -> HttpAnswer | None:
    """The answer behind an error of PyIceberg or requests; None when none came."""
    failed = error if isinstance(error, HTTPError) else error.__cause__
    if not isinstance(failed, HTTPError) or failed.response is None:
        return None
    return HttpAnswer(failed.response.status_code, shown_url(str(failed.response.url)), _said(failed.response.text))


def shown_url(url: str) -> str:
    """A URL as a person may see it: without login and query, for both may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _said(text: str) -> str | None:
    """`type: message` of an error as Iceberg's specification writes it; what a proxy says is no sentence for people."""
    try:
        answer = ErrorResponse.model_validate_json(text).error
    except ValidationError:
        return None
    return " ".join(f"{answer.type}: {answer.message}".split())
