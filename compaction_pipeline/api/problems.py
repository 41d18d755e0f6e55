"""Errors as `application/problem+json` (RFC 9457): what is wrong, which rule was broken, and what to do next."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from compaction_pipeline.api.openapi import schema_reference
from compaction_pipeline.core.catalogs.problem import DefinitionError
from compaction_pipeline.core.errors import (
    ChangedMeanwhile,
    CompactionError,
    ConfigError,
    ErrorCode,
    MergeRefused,
    NotFoundError,
    StaleAttempt,
    StorageUnavailable,
    TablePaused,
    TableRefused,
)
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.words import printable

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
"""The content type of every answer that is an error."""
NOT_DONE = "The request failed"
CORRECT_IT = "correct it, and send the request again"
"""What to do about a value that breaks its rule."""
_NO_SECRETS = "/api/v1/dependencies/"
"""Parameters of these routes are names, times and numbers. Others may hold secrets, which no error repeats."""
_NO_PAGE = "there is no such page: /docs lists those that there are"

_STATUSES: tuple[tuple[type[CompactionError], int, str], ...] = (
    (ConfigError, 400, "The request breaks a rule"),
    (NotFoundError, 404, "Not found"),
    (StaleAttempt, 409, "Stale"),
    (ChangedMeanwhile, 409, "It changed at the same time"),
    (MergeRefused, 422, "The report is not accepted"),
    (TablePaused, 409, "The table is paused"),
    (TableRefused, 409, "The table is refused"),
    (StorageUnavailable, 503, "A database, catalog or store did not answer"),
    (CompactionError, 500, "Failed"),
)


class BodyError(Exception):
    """A body that its route cannot take. `key` names the part that is wrong."""

    def __init__(self, status: int, detail: str, key: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.key = key


_BODY_TITLES = {
    408: "The body is too slow",
    413: "The body is too large",
    415: "The body is not JSON",
}


class OneProblem(BaseModel):
    """One thing that is wrong: the key, and a sentence with the rule and what to do."""

    key: str
    sentence: str


class Problem(BaseModel):
    """The body of every answer that is an error.

    `reason_code` tells programs the kind of error. `key` names the part of the request that is wrong. `problems` has each of several
    things that are wrong with a catalog.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    reason_code: str
    key: str | None = None
    problems: list[OneProblem] | None = None


_ERROR = {MEDIA_TYPE: {"schema": schema_reference(Problem)}}
# A model in place of the reference would be built anew for each error of each route: two thirds of the start of the application.
ANSWERS: dict[int | str, dict[str, object]] = {
    status: {"description": title, "content": _ERROR}
    for status, title in (
        (400, "The request breaks a rule"),
        (401, "No valid token"),
        (403, "The token's role does not allow this"),
        (404, "Not found"),
        (409, "Stale, or refused"),
        (408, "The body is too slow"),
        (413, "The body is too large"),
        (415, "The body is not JSON"),
        (422, "The body is not understood, or not accepted"),
        (429, "The token has made too many requests"),
        (431, "The headers are too large"),
        (503, "A database, catalog or store did not answer"),
    )
}
"""The errors of every route, for the OpenAPI document."""


def problem(
    status: int,
    title: str,
    detail: str,
    reason_code: str,
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    problems: list[OneProblem] | None = None,
) -> JSONResponse:
    """Return an answer that is an error."""
    shown = problems and [OneProblem(key=each.key, sentence=masked_text(each.sentence)) for each in problems]
    made = Problem(title=title, status=status, detail=masked_text(detail), reason_code=reason_code, key=key, problems=shown)
    body = made.model_dump(exclude_none=True)
    return JSONResponse(body, status, dict(headers or {}), MEDIA_TYPE)


def in_words(key: str, error: Mapping[str, Any], *, secret: bool) -> str:
    """What is wrong with a value, as pydantic says it: with its rule and, unless it may be `secret`, with the value."""
    value = error.get("input")
    if error["type"] == "missing":
        return f"{key} is missing"
    if secret or not isinstance(value, (str, int, float, bool)):
        return f"{key}: {error['msg']}"
    return f"{key} is {printable(repr(value), 100)}: {error['msg']}"


def answer_with_problems(app: FastAPI) -> None:
    """Let each error of the application become a problem."""

    @app.exception_handler(CompactionError)
    async def of_ours(request: Request, error: CompactionError) -> JSONResponse:
        status, title = next((status, title) for kind, status, title in _STATUSES if isinstance(error, kind))
        each = [OneProblem(key=one.key, sentence=one.sentence) for one in error.problems] if isinstance(error, DefinitionError) else None
        return problem(status, title, str(error), error.code.value, problems=each)

    @app.exception_handler(BodyError)
    async def of_body(request: Request, error: BodyError) -> JSONResponse:
        title = _BODY_TITLES.get(error.status, "The request is not understood")
        return problem(error.status, title, error.detail, ErrorCode.INVALID_INPUT.value, error.key)

    @app.exception_handler(RequestValidationError)
    async def not_valid(request: Request, error: RequestValidationError) -> JSONResponse:
        # Parameters of the path and of the query. `Bodies` checks the bodies.
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        detail = f"{in_words(key, first, secret=not request.url.path.startswith(_NO_SECRETS))}; {CORRECT_IT}"
        return problem(422, "The request is not understood", detail, ErrorCode.INVALID_INPUT.value, key)

    @app.exception_handler(HTTPException)
    async def of_http(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: ErrorCode.NOT_FOUND, 401: ErrorCode.NO_ACCESS, 403: ErrorCode.NO_ACCESS, 429: ErrorCode.UNAVAILABLE}.get(
            error.status_code, ErrorCode.INVALID_INPUT
        )
        # The framework knows no more about a path that no route has.
        detail = _NO_PAGE if (error.status_code, error.detail) == (404, "Not Found") else str(error.detail)
        headers = error.headers
        if error.status_code == 405:
            # The pages that describe the API are no part of its document.
            taken = ", ".join(_methods(request)) or "GET"
            detail, headers = f"this path does not take {printable(request.method, 20)}: it takes {taken}", {"Allow": taken}
        return problem(error.status_code, NOT_DONE, detail, code.value, headers=headers)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        # Both are as the client wrote them.
        log.error("%s %s failed", printable(request.method, 20), printable(request.scope["path"]), exc_info=error)
        detail = "the server failed in a way that nobody foresaw; its log has the details; please report this"
        return problem(500, "Failed", detail, ErrorCode.UNEXPECTED.value)


def _methods(request: Request) -> list[str]:
    """The methods that the path takes. The framework names only those of the first route that has the path."""
    paths = request.app.openapi()["paths"].items()
    matching = (methods for path, methods in paths if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", path), request.scope["path"]))
    return sorted({method.upper() for methods in matching for method in methods})
