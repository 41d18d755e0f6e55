"""Who calls, and whether the caller may do this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, HTTPException
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.services.access.keep_tokens import KeepTokens

_BEARER = HTTPBearer(auto_error=False, description="A token, `id.secret`. `compaction-pipeline token add` issues one.")


class Guard:
    """Checks the token of each request."""

    def __init__(self, tokens: KeepTokens) -> None:
        self._tokens = tokens

    def needs(self, *roles: Role) -> Callable[..., Token]:
        """Return a dependency that answers the token of the caller, who needs one of these roles. An admin may use every route."""

        def caller(given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> Token:
            token = None if given is None else self._tokens.check(given.credentials)
            if token is None:
                hint = "send the header 'Authorization: Bearer id.secret' with a token that `compaction-pipeline token add` issued"
                raise HTTPException(401, hint, {"WWW-Authenticate": "Bearer"})
            if token.role is not Role.ADMIN and token.role not in roles:
                needed = " or ".join(role.value for role in (*roles, Role.ADMIN))
                raise HTTPException(403, f"this needs a token of the role {needed}, but the given one has the role {token.role.value}")
            return token

        return caller
