"""Decides what a catalog's answer to the request of a commit proves.

An answer proves something only when the request was sent once. When it was sent twice, the catalog may carry out either of the
two, now or later, whatever it answers to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class Answer(Enum):
    """What an answer proves about a commit."""

    LOST_RACE = "lost race"
    """Another writer was first; nothing was committed."""
    REFUSED = "refused"
    """Certainly nothing was committed."""
    UNKNOWN = "unknown"
    """The commit may have landed, may still land, or may never land."""


HTTP_REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 415, 422})
"""With these statuses the server says that it looked at the request and did nothing.

408, 425, 429, 499 and 5xx are not among them: a proxy in front of the server answers these too, while the server may still work.
"""

HTTP_CONFLICT = 409
"""With this status the server says that another writer was first."""

AWS_REFUSALS = frozenset(
    {
        "AccessDeniedException",
        "EntityNotFoundException",
        "ExpiredTokenException",
        "GlueEncryptionException",
        "IncompleteSignatureException",
        "InvalidInputException",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "ResourceNumberLimitExceededException",
        "UnrecognizedClientException",
        "ValidationException",
    }
)
"""Error codes with which AWS Glue says that the request is wrong, or that its sender may not do this."""

_SQL_REFUSALS = ("25", "28", "42")
"""Classes of SQLSTATE: the transaction may not write; the login is wrong; the statement is wrong or a right is missing."""


def of_http(statuses: Sequence[int | None]) -> Answer:
    """Return what the HTTP answers to one commit prove.

    `statuses` has one item for each time that the request was sent, in order. An item is None when no whole answer came. Without any
    item nothing was sent, and so nothing was committed.
    """
    if not statuses:
        return Answer.REFUSED
    if len(statuses) > 1:
        return Answer.UNKNOWN
    if statuses[0] == HTTP_CONFLICT:
        return Answer.LOST_RACE
    return Answer.REFUSED if statuses[0] in HTTP_REFUSALS else Answer.UNKNOWN


def of_aws(code: str, resent: int) -> Answer:
    """Return what an error of AWS proves. `code` is the error's code, `resent` counts how often the client sent the request again."""
    return Answer.REFUSED if code in AWS_REFUSALS and resent == 0 else Answer.UNKNOWN


def of_sql(sqlstate: str | None) -> Answer:
    """Return what a database's error proves. `sqlstate` is the SQLSTATE of the error, None when it has none."""
    return Answer.REFUSED if sqlstate is not None and sqlstate[:2] in _SQL_REFUSALS else Answer.UNKNOWN
