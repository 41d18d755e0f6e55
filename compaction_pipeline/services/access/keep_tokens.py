"""Issues, checks and revokes the tokens of the HTTP service."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from compaction_pipeline.core.access.ports import TokenStore
from compaction_pipeline.core.access.token import (
    ID_BYTES,
    SECRET_BYTES,
    Role,
    Token,
    digest_of,
    split_token,
    token_id_in,
    token_name,
    token_receivers,
    token_text,
)
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.leases.ports import Clock


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token, and its `text`: the only copy of the secret."""

    token: Token
    text: str = field(repr=False)


class KeepTokens:
    """Five verbs: issue, check, revoke, allow, forget."""

    def __init__(self, tokens: TokenStore, clock: Clock, new_secret: Callable[[int], str]) -> None:
        """`new_secret` returns so many random bytes as hexadecimal text."""
        self._tokens = tokens
        self._clock = clock
        self._new_secret = new_secret

    def issue(
        self, role: Role, name: str, *, parent_id: str | None = None, optimizer_id: str | None = None, receivers: Sequence[str] = ()
    ) -> Issued:
        """Store a new token, and return it with its text. Raises ConfigError for a name that breaks the rule, and for `receivers` of a role
        that claims for none or for all."""
        secret, salt = self._new_secret(SECRET_BYTES), self._new_secret(SECRET_BYTES // 2)
        token = Token(
            self._new_secret(ID_BYTES),
            token_name(name),
            role,
            self._clock(),
            salt,
            digest_of(salt, secret),
            parent_id=parent_id,
            optimizer_id=optimizer_id,
            receivers=token_receivers(role, receivers),
        )
        self._tokens.add(token)
        return Issued(token, token_text(token.token_id, secret))

    def check(self, text: str) -> Token | None:
        """Return the token that this text belongs to. Return None when it belongs to none, or to one that was revoked."""
        parts = split_token(text)
        token = self._tokens.token(parts[0]) if parts else None
        if parts is None or token is None or token.is_revoked or not token.matches(parts[1]):
            return None
        return token

    def tokens(self) -> Sequence[Token]:
        """Return the tokens that people issued, the oldest first. Those of registered optimizers are left out."""
        return tuple(token for token in self._tokens.tokens() if token.optimizer_id is None)

    def forget(self, before: datetime, optimizers: Collection[str]) -> None:
        """Remove old tokens that are no longer accepted: revoked ones, and those of optimizers that are not among these."""
        self._tokens.expire(before, optimizers)

    def is_blocked(self, token_id: str) -> bool:
        """Return whether no optimizer may register with a token now."""
        token = self._tokens.token(token_id)
        return token is not None and token.blocked_at is not None

    def allow(self, token_id: str) -> bool:
        """Let optimizers register again with a token that was blocked. Return whether it was blocked.

        Raises NotFoundError, and ConfigError when it was revoked.
        """
        token_id = token_id_in(token_id)
        token = self._tokens.token(token_id)
        if token is not None and token.is_revoked:
            raise ConfigError(f"token {token_id} is revoked, and stays so: issue another one with `compaction-pipeline token add`")
        if token is None or not self._tokens.allow(token_id, self._clock()):
            raise _unknown(token_id)
        return token.blocked_at is not None

    def revoke(self, token_id: str) -> Sequence[str]:
        """Stop accepting a token, and those of the optimizers that registered with it. Return the ids of these optimizers.

        Raises NotFoundError.
        """
        token_id = token_id_in(token_id)
        if not self._tokens.revoke(token_id, self._clock()):
            raise _unknown(token_id)
        family = [token for token in self._tokens.tokens() if token_id in (token.token_id, token.parent_id)]
        return tuple(token.optimizer_id for token in family if token.optimizer_id is not None)


def _unknown(token_id: str) -> NotFoundError:
    return NotFoundError(f"no token has the id {token_id!r}; `compaction-pipeline token list` shows those that exist")
