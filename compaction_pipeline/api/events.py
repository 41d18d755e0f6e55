"""The route of catalogs: they tell of commits, as CloudEvents over HTTP or as Polaris's own events."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel

from compaction_pipeline.api.bodies import Bodies
from compaction_pipeline.api.problems import ANSWERS, BodyError
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.tables.catalog_events import MOST_EVENTS
from compaction_pipeline.services.tables.take_events import TakeEvents

_AT_ONCE = 2
"""So many requests are taken at a time. An event of an unknown table waits for its catalog, and must not keep heartbeats waiting."""
_JSON, ONE, BATCH = "application/json", "application/cloudevents+json", "application/cloudevents-batch+json"
_ATTRIBUTE = "ce-"
_DESCRIBED = {
    "requestBody": {
        "required": True,
        "content": {
            ONE: {"schema": {"type": "object", "description": "One CloudEvent in structured mode."}},
            BATCH: {"schema": {"type": "array", "description": "CloudEvents in batched mode.", "items": {"type": "object"}}},
            _JSON: {
                "schema": {
                    "description": "The data of one CloudEvent in binary mode, or one event or an array of events of Polaris.",
                    "anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}],
                }
            },
        },
    }
}


class EventsAnswer(BaseModel):
    """How many `tables` are looked at within seconds, how many events were `left_out`, and `why`: the first sentences for people."""

    tables: int
    left_out: int
    why: tuple[str, ...]


def event_routes(take_events: TakeEvents, guard: Guard, bodies: Bodies) -> APIRouter:
    """The route below `/api/v1` that catalogs, or the bridges behind their queues, use."""
    sender = guard.needs(Role.EVENTS)
    routes = APIRouter(tags=["writers"], responses=ANSWERS, dependencies=[Depends(sender)])
    sent = bodies.read_by(lambda value: value, sender, body_bounds.COMMIT_REPORT, (_JSON, ONE, BATCH))
    limiter = CapacityLimiter(_AT_ONCE)

    @routes.post("/catalogs/{catalog}/events", openapi_extra=_DESCRIBED)
    async def take(request: Request, catalog: Annotated[str, Path(max_length=200)], body: Any = Depends(sent)) -> EventsAnswer:
        """Tell of commits to tables of a catalog, so that these are looked at within seconds. Nothing is planned from an event itself.

        An event that is no commit, or that nobody understands, is left out, and the answer is 200 all the same: a sender that sent it again
        would not be understood better.
        """
        events = _events(request, body)
        taken = await to_thread.run_sync(take_events.take, catalog, events, limiter=limiter)
        return EventsAnswer(tables=taken.tables, left_out=taken.left_out, why=taken.why)

    return routes


def _events(request: Request, body: object) -> list[object]:
    """The events of a request: the array of the batched mode, one of the structured mode, or one whose attributes are headers."""
    attributes = {name[len(_ATTRIBUTE) :]: unquote(value) for name, value in request.headers.items() if name.startswith(_ATTRIBUTE)}
    if "type" in attributes:
        return [{**attributes, "data": body}]
    events = body if isinstance(body, list) else [body]
    if len(events) > MOST_EVENTS:
        raise BodyError(413, f"the body has {len(events):,} events, but at most {MOST_EVENTS:,} are read: send fewer at once")
    return events
