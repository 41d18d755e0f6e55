"""What a catalog's answer to the request of a commit proves, from the answer alone.

Only an answer to a request that was sent once proves anything: of two that were sent, one may have been carried out, or may be
carried out later, whatever the other was told.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum


class Answer(Enum):
    """LOST_RACE: another writer was first. REFUSED: for certain not committed. UNKNOWN: it was committed, or will be, or will not."""

    LOST_RACE = "lost race"
    REFUSED = "refused"
    UNKNOWN = "unknown"


HTTP_REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 415, 422})
"""The server looked at the request and did nothing. Not 408, 425, 429, 499 or 5xx: what stands in front of a server answers these too,
while the server itself may be at it."""

HTTP_CONFLICT = 409

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
"""Error codes of Glue that say what is wrong with the request or with who sent it."""

_SQL_REFUSALS = ("25", "28", "42")


def of_http(statuses: Sequence[int | None]) -> Answer:
    """`statuses`: the answer to each time that the request was sent, in order; None where it never came, or not whole."""
    if not statuses:
        return Answer.REFUSED
    if len(statuses) > 1:
        return Answer.UNKNOWN
    if statuses[0] == HTTP_CONFLICT:
        return Answer.LOST_RACE
    return Answer.REFUSED if statuses[0] in HTTP_REFUSALS else Answer.UNKNOWN


def of_aws(code: str, resent: int) -> Answer:
    """`code` is the error's code, `resent` how often the client sent the request again before it gave up."""
    return Answer.REFUSED if code in AWS_REFUSALS and resent == 0 else Answer.UNKNOWN


def of_sql(sqlstate: str | None) -> Answer:
    """`sqlstate` is what a database answered to a statement: a transaction that may not write, a wrong password, a missing right."""
    return Answer.REFUSED if sqlstate is not None and sqlstate[:2] in _SQL_REFUSALS else Answer.UNKNOWN
