"""Finds out who calls, and refuses a caller that may not use the route or that calls too often."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Annotated

from fastapi import Depends, HTTPException, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from compaction_pipeline.api.rate_limit import RateLimit
from compaction_pipeline.core.access.rate import PER_SECOND
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.services.access.keep_tokens import KeepTokens

_BEARER = HTTPBearer(auto_error=False, description="A token, `id.secret`. `compaction-pipeline token add` issues one.")

_READING = ("GET", "HEAD")
_NO_TOKEN = "send the header 'Authorization: Bearer id.secret' with a token that `compaction-pipeline token add` issued"
_UNKNOWN_TOKEN = "the token is not known here, or somebody revoked it: issue another one with `compaction-pipeline token add`"


class Guard:
    """Checks the token of each request."""

    def __init__(self, tokens: KeepTokens, limit: RateLimit) -> None:
        self._tokens = tokens
        self._limit = limit

    def needs(self, *roles: Role) -> Callable[..., Token]:
        """Return a dependency that answers the token of the caller, who needs one of these roles. An admin may use every route.

        A request that may change something counts for the token's limit.
        """

        def caller(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> Token:
            token = None if given is None else self._tokens.check(given.credentials)
            if token is None:
                hint = _NO_TOKEN if given is None else _UNKNOWN_TOKEN
                raise HTTPException(401, hint, {"WWW-Authenticate": "Bearer"})
            wait = self._limit.take(token.token_id) if request.method not in _READING else 0
            if wait:
                seconds = ceil(wait)
                detail = f"this token has made too many requests: at most {PER_SECOND:g} in a second; send it again in {seconds} s"
                raise HTTPException(429, detail, {"Retry-After": str(seconds)})
            if token.role is not Role.ADMIN and token.role not in roles:
                needed = " or ".join(role.value for role in (*roles, Role.ADMIN))
                raise HTTPException(403, f"this needs a token of the role {needed}, but the given one has the role {token.role.value}")
            return token

        return caller
