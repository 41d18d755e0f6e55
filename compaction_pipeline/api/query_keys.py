"""Refuses a request whose query has a key that its route does not know, and says which keys the route knows.

FastAPI would ignore such a key. Whoever mistypes `node` would then compact a whole table.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from compaction_pipeline.api.problems import BodyError
from compaction_pipeline.core.words import printable

_LONGEST_KEY = 100
_SCRAPED = "/metrics"
"""A scraper may add keys of its own, and what it asks changes nothing."""


def refuse_unknown_query_keys(request: Request) -> None:
    """Raise BodyError for the first key that the route of the request does not know. Values are not repeated: they may hold a secret.

    It is asked for requests with a right token only, so that nobody else learns the keys, or escapes the limits of wrong tokens.
    """
    if request.url.path == _SCRAPED:
        return
    route = request.scope["route"]
    known = set(_query_keys(route.dependant)) if isinstance(route, APIRoute) else set()
    for key in request.query_params:
        if key not in known:
            shown = printable(key, _LONGEST_KEY)
            exist = f"the keys that it knows are {', '.join(sorted(known))}" if known else "it knows none"
            raise BodyError(
                422, f"query: this route knows no key {shown!r} there: {exist}; correct the key, or leave it out", f"query.{shown}"
            )


def _query_keys(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for part in dependant.dependencies:
        yield from _query_keys(part)
