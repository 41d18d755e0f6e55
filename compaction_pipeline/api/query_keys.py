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
_PROBED = ("/health/", "/metrics")
"""Load balancers and scrapers may add keys of their own, and what they ask changes nothing."""


async def refuse_unknown_query_keys(request: Request) -> None:
    """Raise BodyError for the first key that the route of the request does not know. Values are not repeated: they may hold a secret."""
    if request.url.path.startswith(_PROBED):
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
