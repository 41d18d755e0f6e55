"""Tokens: what a program shows to the HTTP service, and what it may do with it.

A token is the text `id.secret`. The service finds the stored token by its id, and compares a salted hash of the secret. The secret itself
is stored nowhere on the server.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.names import plain_name

SECRET_BYTES = 32
"""A secret has this many random bytes (256 bits), and a salt half as many."""
ID_BYTES = 8
LONGEST_NAME = 200


class Role(str, Enum):
    """What the holder of a token may do.

    An ADMIN may do everything but report an attempt: only the optimizer that holds it may. An OPTIMIZER takes tasks and reports their
    results. A WRITER reports its commits and runs, registers what consumers have read, and claims jobs for the receivers that its token
    names. EVENTS tells of the commits that a catalog saw, and does
    nothing else. A READER looks at the state.
    """

    ADMIN = "admin"
    OPTIMIZER = "optimizer"
    WRITER = "writer"
    EVENTS = "events"
    READER = "reader"


@dataclass(frozen=True, slots=True)
class Token:
    """A stored token. `salt` and `digest` are hexadecimal; `digest` is the SHA-256 of the salt and the secret.

    The service issues one more token to each optimizer that registers. Its `parent_id` is the token with which the optimizer registered,
    and `optimizer_id` is the only optimizer that it speaks for. When the parent is revoked, it is not accepted any more either.

    No optimizer may register with a token from `blocked_at` on, until a person allows the token again. Several reports of its optimizers
    could not be true. Those before `allowed_at` do not count any more.

    `receivers` are those of jobs for which its holder may claim; None of a token that was made before there were any, for all.
    """

    token_id: str
    name: str
    role: Role
    created_at: datetime
    salt: str = field(repr=False)
    digest: str = field(repr=False)
    revoked_at: datetime | None = None
    parent_id: str | None = None
    optimizer_id: str | None = None
    blocked_at: datetime | None = None
    allowed_at: datetime | None = None
    receivers: tuple[str, ...] | None = ()

    @property
    def issued_id(self) -> str:
        """The id of the token that a person issued: this one, or the one with which its optimizer registered. Limits count by it."""
        return self.parent_id or self.token_id

    @property
    def is_revoked(self) -> bool:
        return self.revoked_at is not None

    def serves(self, receiver: str) -> bool:
        """Return whether its holder may claim for a receiver of jobs."""
        return self.role is Role.ADMIN or self.receivers is None or receiver in self.receivers

    def matches(self, secret: str) -> bool:
        """Return whether this is the token's secret. The time that this takes tells nothing about the secret."""
        return hmac.compare_digest(self.digest, digest_of(self.salt, secret))


def digest_of(salt: str, secret: str) -> str:
    """Return the hash that is stored for a secret, hexadecimal."""
    return hashlib.sha256(bytes.fromhex(salt) + secret.encode()).hexdigest()


def token_text(token_id: str, secret: str) -> str:
    """Return the text that the holder of a token shows."""
    return f"{token_id}.{secret}"


def split_token(text: str) -> tuple[str, str] | None:
    """Return the id and the secret of a token's text. Return None when the text is no token."""
    token_id, dot, secret = text.partition(".")
    return (token_id, secret) if dot and token_id and secret else None


def token_id_in(text: str) -> str:
    """Return the id in what a person gave: an id, or by mistake a whole token, whose secret no message may show."""
    return text.partition(".")[0]


def token_name(text: str) -> str:
    """Return the name of a token. Raises ConfigError when it is empty, too long or has control characters."""
    if not text.strip() or len(text) > LONGEST_NAME or not text.isprintable():
        raise ConfigError(f"the name {text[:50]!r} of a token must have 1 to {LONGEST_NAME} printable characters, e.g. 'flink writers'")
    return text.strip()


def token_receivers(role: Role, receivers: Sequence[str]) -> tuple[str, ...]:
    """Return the receivers of a token. Raises ConfigError for a role that claims for none, or for all, and for one that is no name."""
    if receivers and role is not Role.WRITER:
        raise ConfigError(f"a token of the role {role.value} names no receiver: only one of the role {Role.WRITER.value} claims for some")
    return tuple(dict.fromkeys(plain_name("receiver", receiver) for receiver in receivers))
