"""What use cases need to keep tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.access.token import Token


class TokenStore(Protocol):
    """The stored tokens."""

    def add(self, token: Token) -> None:
        """Store a new token."""

    def token(self, token_id: str) -> Token | None:
        """Return a token; None when no token has this id."""

    def tokens(self) -> Sequence[Token]:
        """Return all tokens, the oldest first."""

    def revoke(self, token_id: str, now: datetime) -> bool:
        """Mark a token, and all tokens whose parent it is, as revoked. Return False when no token has this id.

        A token that was revoked before keeps its first time.
        """

    def block(self, token_id: str, now: datetime) -> bool:
        """Block a token. Return False when no token has this id. A token that was blocked before keeps its first time."""

    def allow(self, token_id: str, now: datetime) -> bool:
        """Let a token be used again that was blocked. Return False when no token has this id."""

    def optimizers_of(self, token_id: str) -> Sequence[str]:
        """Return the optimizers that registered with a token, sorted."""

    def issuer_of(self, optimizer_id: str) -> str | None:
        """Return the id of the token with which an optimizer registered; None when that is not known."""

    def expire(self, before: datetime, optimizers: Collection[str]) -> int:
        """Remove the tokens that were revoked before this time, and those of optimizers that are not among these. Return how many.

        A token that was issued after `before` stays in any case.
        """
