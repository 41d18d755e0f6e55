"""Reads the bodies of requests: only after it is known who sends them, within the bounds of their route, and large ones beside the loop.

A route takes its body from a dependency that `Bodies` makes. FastAPI itself would read and parse a body before it asks who sends it, and
would do both in the event loop, where a large body keeps everybody waiting. A small one costs less than the way to a thread and back.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, HTTPException, Request
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect

from compaction_pipeline.api.large_bodies import LargeBodies, NoTurn
from compaction_pipeline.api.openapi import schema_reference
from compaction_pipeline.api.problems import CORRECT_IT, BodyError, in_words
from compaction_pipeline.api.wire import adapter_of
from compaction_pipeline.core.access.body_bounds import MOST_ERRORS_TOLD, BodyBounds, marks_in
from compaction_pipeline.core.access.token import Token
from compaction_pipeline.core.words import printable

T = TypeVar("T")

_LARGE_BYTES = 64 * 1024
"""A body of at most this size is read at once. Larger ones wait for a place."""
_SMALL_BYTES = 1024
"""A body of at most this size is parsed in the event loop. That takes less than to hand it to a thread, also when all of it is wrong."""
_PARSED_AT_ONCE = 2
"""So many small bodies are parsed at a time. Of the large ones it is one, because what they become is much larger than they are."""
_MOST_ERRORS_LOOKED_AT = 1_000
"""pydantic makes the list of all errors in one piece, during which nothing else runs. Of more errors, only the number is told."""
_JSON = "application/json"
_NO_BODY = BodyBounds(1024, 0)
"""A body of a route that takes none: more is not read to find out whether it is an empty object."""

Sender = Callable[..., Awaitable[Token] | AsyncIterator[Token]]
"""A dependency that answers the token of the caller."""


class Bodies:
    """Makes the dependencies by which routes get their bodies."""

    def __init__(self, count_bytes: Callable[[Token, int], None], seconds: float) -> None:
        """`count_bytes` counts the bytes of a body for the limit of its token, and raises when the token has sent too many.

        A body must have arrived after `seconds`.
        """
        self._count_bytes = count_bytes
        self._seconds = seconds
        self._large = LargeBodies()
        self._parsing, self._parsing_large = CapacityLimiter(_PARSED_AT_ONCE), CapacityLimiter(1)

    def of(self, kind: type[T], who: Sender, bounds: BodyBounds, *, secret: bool = True) -> Callable[..., Awaitable[T]]:
        """Return a dependency that answers the body as a value of this kind. `who` is the dependency that says who sends it. Errors repeat
        the values of a body that is not `secret`."""

        async def body(request: Request, token: Token = Depends(who)) -> T:
            return await self._parsed(request, token, bounds, lambda text: _value(kind, text, secret=secret))

        return body

    def read_by(
        self, read: Callable[[object], T], who: Sender, bounds: BodyBounds, types: Collection[str] = (_JSON,)
    ) -> Callable[..., Awaitable[T]]:
        """Return a dependency that answers what `read` makes of the JSON value of a body of one of these content types."""

        async def body(request: Request, token: Token = Depends(who)) -> T:
            return await self._parsed(request, token, bounds, lambda text: read(_json(text)), types)

        return body

    async def _parsed(
        self, request: Request, token: Token, bounds: BodyBounds, parse: Callable[[bytes], T], types: Collection[str] = (_JSON,)
    ) -> T:
        _check_type(request, types)
        announced = _announced(request)
        if announced is not None and announced > bounds.most_bytes:
            raise _too_large(bounds)
        if announced is not None:
            self._count_bytes(token, announced)
        if announced is not None and announced <= _LARGE_BYTES:
            return await self._parsed_now(request, token, bounds, parse)
        try:
            # Optimizers have tokens of their own. Whoever has the token with which they register can have as many as he likes.
            async with self._large.place(token.issued_id, self._seconds):
                return await self._parsed_now(request, token, bounds, parse)
        except NoTurn:
            busy = f"too many large bodies are sent now, and this one got no turn within {self._seconds:g} s; send it again"
            raise HTTPException(429, busy, {"Retry-After": "1"}) from None

    async def _parsed_now(self, request: Request, token: Token, bounds: BodyBounds, parse: Callable[[bytes], T]) -> T:
        text = await _in_time(request, bounds, self._seconds)
        if _announced(request) is None:
            self._count_bytes(token, len(text))
        if len(text) <= _SMALL_BYTES:
            return _checked(text, bounds, parse)
        limiter = self._parsing_large if len(text) > _LARGE_BYTES else self._parsing
        return await to_thread.run_sync(_checked, text, bounds, parse, limiter=limiter)


def body_of(kind: type, left_out: Mapping[type, Collection[str]] | None = None) -> dict[str, Any]:
    """What the OpenAPI document says of a body that a dependency reads, for the `openapi_extra` of a route.

    `left_out` are the fields that the route refuses although their type has them.
    """
    return {"requestBody": {"required": True, "content": {_JSON: {"schema": schema_reference(kind, left_out)}}}}


async def refuse_body(request: Request, seconds: float) -> None:
    """Raise BodyError for a body that the route of the request does not take. An empty object is no body: some clients always send one.

    Whoever sends a body to such a route means something that would not be done. The body must have arrived after `seconds`.
    """
    route, announced = request.scope["route"], _announced(request)
    if announced == 0 or (isinstance(route, APIRoute) and "requestBody" in (route.openapi_extra or {})):
        return
    refused = BodyError(422, "body: this route takes no body, but the request has one; nothing was done, so send it without", "body")
    if announced is not None and announced > _NO_BODY.most_bytes:
        raise refused
    try:
        text = await _in_time(request, _NO_BODY, seconds)
    except BodyError as error:
        raise (refused if error.status == 413 else error) from None
    if text.translate(None, b" \t\r\n") not in (b"", b"{}"):
        raise refused


def first_errors(error: ValidationError, within: str = "", *, secret: bool = True) -> str:
    """The first errors of a value, in words. The wrong values are not repeated where they may hold secrets."""
    count = error.error_count()
    if count > _MOST_ERRORS_LOOKED_AT:
        return f"{count:,} of its values are wrong; see the description of the body at /docs"
    told = [
        in_words(printable(".".join(str(part) for part in (within, *one["loc"]) if part != ""), 200) or "body", one, secret=secret)
        for one in error.errors(include_url=False, include_context=False, include_input=not secret)[:MOST_ERRORS_TOLD]
    ]
    more = f"; and {count - len(told):,} more" if count > len(told) else ""
    return "; ".join(told) + more


async def _in_time(request: Request, bounds: BodyBounds, seconds: float) -> bytes:
    try:
        return await asyncio.wait_for(_read(request, bounds), seconds)
    except asyncio.TimeoutError:
        raise BodyError(408, f"the body must arrive within {seconds:g} s") from None


async def _read(request: Request, bounds: BodyBounds) -> bytes:
    parts: list[bytes] = []
    length = 0
    try:
        async for part in request.stream():
            length += len(part)
            if length > bounds.most_bytes:
                raise _too_large(bounds)
            parts.append(part)
    except ClientDisconnect:
        raise BodyError(400, "the connection ended before the body was complete") from None
    return b"".join(parts)


def _checked(text: bytes, bounds: BodyBounds, parse: Callable[[bytes], T]) -> T:
    if marks_in(text) > bounds.most_marks:
        most = f"at most {bounds.most_marks:,} of the characters comma, colon, '[' and '{{'"
        raise BodyError(413, f"the body has too many values: it may have {most} here")
    return parse(text)


def _value(kind: type[T], text: bytes, *, secret: bool) -> T:
    """The body as a value of this kind. A number in quotes is no number, and neither is `true`: who sends it means something else."""
    _json(text)
    try:
        return cast(TypeAdapter[T], adapter_of(cast(Any, kind))).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0] if error.error_count() == 1 else None
        key = ".".join(str(part) for part in ("body", *first["loc"])) if first is not None else "body"
        detail = f"{first_errors(error, 'body', secret=secret)}; {CORRECT_IT}"
        raise BodyError(422, detail, printable(key, 200)) from None


def _json(text: bytes) -> Any:
    if not text:
        raise BodyError(422, "body: this route needs a body in JSON, but the request has none", "body")
    try:
        value = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        # The text is not repeated, because it may hold a secret.
        raise BodyError(422, f"the body is not JSON: {error}; correct it, and send it again", "body") from None
    # pydantic's parser takes the last one of two values with one key, and tells nobody. This one reads only the keys.
    json.loads(text, object_pairs_hook=_refuse_key_twice, parse_int=str, parse_float=str)
    return value


def _refuse_key_twice(pairs: list[tuple[str, object]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            shown = printable(key, 200)
            raise BodyError(422, f"body: an object has the key {shown!r} twice; give it once, and send the body again", f"body.{shown}")
        keys.add(key)


def _check_type(request: Request, types: Collection[str]) -> None:
    sent_as = request.headers.get("content-type", "").partition(";")[0].strip().lower()[:100]
    if sent_as in types or (not sent_as and _announced(request) == 0):
        return
    has = f"the content type {printable(sent_as)!r}" if sent_as else "no content type"
    detail = f"the body has {has}, but this service reads JSON alone: send the header 'Content-Type: {next(iter(types))}' with it"
    raise BodyError(415, detail, "Content-Type")


def _announced(request: Request) -> int | None:
    """How many bytes the request says that its body has; None when it comes in chunks of which nobody knows the number."""
    if "transfer-encoding" in request.headers:
        return None
    text = request.headers.get("content-length", "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _too_large(bounds: BodyBounds) -> BodyError:
    size = bounds.most_bytes
    text = f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 1024} KiB"
    return BodyError(413, f"a body may have at most {text} here")
