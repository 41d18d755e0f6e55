"""Refuses a request whose query has a key that its route does not know, or one key twice, and says which keys the route knows.

FastAPI would ignore such a key, and all values of a key but the last one. Whoever mistypes `node` would then compact a whole table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_origin

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from compaction_pipeline.api.problems import BodyError
from compaction_pipeline.core.words import printable

_LONGEST_KEY = 100
_SCRAPED = "/metrics"
"""A scraper may add keys of its own, and what it asks changes nothing."""


def refuse_wrong_query_keys(request: Request) -> None:
    """Raise BodyError for the first key that the route of the request does not know, or that it takes once and that is there again.

    Values are not repeated: they may hold a secret.

    It is asked for requests with a right token only, so that nobody else learns the keys, or escapes the limits of wrong tokens.
    """
    if request.url.path == _SCRAPED:
        return
    route = request.scope["route"]
    known = dict(_query_keys(route.dependant)) if isinstance(route, APIRoute) else {}
    seen: set[str] = set()
    for key, _ in request.query_params.multi_items():
        shown = printable(key, _LONGEST_KEY)
        if key not in known:
            exist = f"the keys that it knows are {', '.join(sorted(known))}" if known else "it knows none"
            raise BodyError(
                422, f"query: this route knows no key {shown!r} there: {exist}; correct the key, or leave it out", f"query.{shown}"
            )
        if key in seen and not known[key]:
            raise BodyError(422, f"query: this route takes the key {shown!r} once, but it is there again; give it once", f"query.{shown}")
        seen.add(key)


def _query_keys(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Each key that a route knows, and whether it may come several times."""
    yield from ((field.alias, get_origin(field.field_info.annotation) in (list, tuple)) for field in dependant.query_params)
    for part in dependant.dependencies:
        yield from _query_keys(part)
