"""Finds out who calls, and refuses a caller that may not use the route or that asks for too much."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from math import ceil
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, HTTPException, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from compaction_pipeline.api.bodies import refuse_body
from compaction_pipeline.api.patient_protocol import KNOWN
from compaction_pipeline.api.problems import NOT_DONE, problem
from compaction_pipeline.api.query_keys import refuse_wrong_query_keys
from compaction_pipeline.api.rate_limit import RateLimit
from compaction_pipeline.api.wrong_tokens import READING, WrongTokens
from compaction_pipeline.core.access.rate import BYTES_OF_ONE, COST_OF_OWN, MOST_AT_ONCE, MOST_AT_ONCE_TOGETHER, PER_SECOND
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.errors import ErrorCode
from compaction_pipeline.services.access.keep_tokens import KeepTokens

_BEARER = HTTPBearer(auto_error=False, description="A token, `id.secret`. `compaction-pipeline token add` issues one.")

_BEARER_WANTED = {"WWW-Authenticate": "Bearer"}
_LOOKS_AT_ONCE = 4
"""So many tokens are looked up in the state database at a time."""
_NO_TOKEN = "send the header 'Authorization: Bearer id.secret' with a token that `compaction-pipeline token add` issued"
_UNKNOWN_TOKEN = "the token is not known here, or somebody revoked it: issue another one with `compaction-pipeline token add`"


def unknown_token() -> Response:
    """The answer to a token that is not known."""
    return problem(401, NOT_DONE, _UNKNOWN_TOKEN, ErrorCode.NO_ACCESS.value, headers=_BEARER_WANTED)


def no_token() -> Response:
    """The answer to a request without a token."""
    return problem(401, NOT_DONE, _NO_TOKEN, ErrorCode.NO_ACCESS.value, headers=_BEARER_WANTED)


Caller = Callable[..., AsyncIterator[Token]]


class Guard:
    """Checks the token of each request. Nothing of a request's body is read before."""

    def __init__(self, tokens: KeepTokens, limit: RateLimit, wrong: WrongTokens, body_seconds: float) -> None:
        """A body of a route that takes none must show after `body_seconds` that it is empty."""
        self._tokens = tokens
        self._limit = limit
        self._wrong = wrong
        self._body_seconds = body_seconds
        self._looks = CapacityLimiter(_LOOKS_AT_ONCE)
        self._at_once: Counter[tuple[str, int]] = Counter()

    def needs(self, *roles: Role) -> Caller:
        """Return a dependency that answers the token of the caller, who needs one of these roles. An admin may use every route.

        A request that may change something counts for the limit of the issued token, so that nobody gets more by registering optimizers.
        The request counts as served until its answer is sent.
        """

        async def caller(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)]) -> AsyncIterator[Token]:
            token = await self._known(given)
            wait = self._wait(token) if request.method not in READING else 0
            if wait and given is not None:
                refusal = _too_many(wait)
                answer = problem(429, NOT_DONE, refusal.detail, ErrorCode.UNAVAILABLE.value, headers=refusal.headers)
                # Whoever does not wait as long as he is told to is answered at once, until then.
                self._wrong.tire(given.credentials, ceil(wait), answer)
                raise refusal
            if token.role is not Role.ADMIN and token.role not in roles:
                needed = " or ".join(dict.fromkeys(role.value for role in (*roles, Role.ADMIN)))
                raise HTTPException(403, f"this needs a token of the role {needed}, but the given one has the role {token.role.value}")
            refuse_wrong_query_keys(request)
            bounds = ((token.token_id, MOST_AT_ONCE), (token.issued_id, MOST_AT_ONCE_TOGETHER))
            for bound in bounds:
                if self._at_once[bound] >= bound[1]:
                    detail = f"{bound[1]} requests of token {bound[0]} are being answered, and more may not be; send it again in 1 s"
                    raise HTTPException(429, detail, {"Retry-After": "1"})
            self._at_once.update(bounds)
            known: Callable[[], None] | None = request.scope.get("state", {}).get(KNOWN)
            if known is not None:
                known()
            try:
                if request.method not in READING:
                    await refuse_body(request, self._body_seconds)
                yield token
            finally:
                for bound in bounds:
                    self._at_once[bound] -= 1
                    if not self._at_once[bound]:
                        del self._at_once[bound]

        return caller

    def count_bytes(self, token: Token, length: int) -> None:
        """Count the bytes of a body for the limit of its token. Raises HTTPException when it has sent too much."""
        wait = self._limit.take(token.issued_id, length // BYTES_OF_ONE) if length >= BYTES_OF_ONE else 0
        if wait:
            raise _too_many(wait)

    def _wait(self, token: Token) -> float:
        """Count a request. Return for how many seconds the caller must wait instead; 0 when it is allowed."""
        own = self._limit.take(token.token_id, COST_OF_OWN) if token.parent_id is not None else None
        return 0 if own == 0 else self._limit.take(token.issued_id)

    async def check_again(self, request: Request) -> None:
        """Raise HTTPException when the token of a request that waited is no longer valid."""
        await self._known(await _BEARER(request))

    async def _known(self, given: HTTPAuthorizationCredentials | None) -> Token:
        if given is None:
            raise HTTPException(401, _NO_TOKEN, _BEARER_WANTED)
        text = given.credentials
        token = None
        if not self._wrong.has(text):
            token = await to_thread.run_sync(self._tokens.check, text, limiter=self._looks)
            if token is None:
                self._wrong.add(text)
        if token is None:
            raise HTTPException(401, _UNKNOWN_TOKEN, _BEARER_WANTED)
        return token


def _too_many(wait: float) -> HTTPException:
    seconds = ceil(wait)
    detail = (
        f"this token, or those of the optimizers that registered with it, have made too many requests: at most {PER_SECOND:g} in a second "
        f"together, and each {BYTES_OF_ONE // 1024} KiB of a body count as one; send it again in {seconds} s"
    )
    return HTTPException(429, detail, {"Retry-After": str(seconds)})
