"""Finds out what kind of failure an error of a file system or an object store reports, from its text and type alone.

Each client reports the same failure in its own words. PyArrow raises OSError with texts such as "AWS Error SLOW_DOWN". Other
clients name the service's code ("SlowDown") or the HTTP status. This module decides between "try again", "somebody must change a
right or a key" and "the file does not exist". A wrong decision can cost data: a person who is told that a file is lost, while the
store is only busy, deletes the file from the table.
"""

from __future__ import annotations

import errno
import re
from enum import Enum


class StorageFailure(Enum):
    """The meaning of a failure. It decides what can be done about the failure."""

    PASSING = "passing"
    """The store is busy, or a connection broke. The same request works later."""
    ABSENT = "absent"
    """The store says that there is no such file."""
    DENIED = "denied"
    """The store knows the identity, but the identity lacks a right."""
    CREDENTIALS = "credentials"
    """The key or token is wrong or has expired."""
    REGION = "region"
    """The bucket is in another region."""
    BUCKET = "bucket"
    """The store does not know the bucket. This says nothing about any file in it."""
    FULL = "full"
    """No room is left."""
    OTHER = "other"


_REGION = re.compile(
    r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|incorrectly configured region|HTTP status 301|wrong region",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(
    r"Expired_?Token|Invalid_?Token|Token_?Refresh_?Required|Request_?Expired|Invalid_?Access_?Key_?Id|Signature_?Does_?Not_?Match"
    r"|INVALID_SIGNATURE|Invalid_?Client_?Token_?Id|Unrecognized_?Client|Request_?Time_?Too_?Skewed|Missing_?Authentication_?Token"
    r"|NoCredentials|No credentials|HTTP (?:status )?401|status code: 401|Unauthenticated",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"Access_?Denied|AllAccessDisabled|Permission denied|AWS Error \[code 15\]|HTTP (?:status )?403|status code: 403", re.IGNORECASE
)
_BUCKET = re.compile(r"No_?Such_?Bucket|bucket does not exist", re.IGNORECASE)
_ABSENT = re.compile(r"No_?Such_?Key|Path does not exist|RESOURCE_NOT_FOUND|HTTP (?:status )?404|status code: 404", re.IGNORECASE)
_PASSING = re.compile(
    r"Slow_?Down|Service_?Unavailable|Internal_?(?:Error|Failure)|Request_?Timeout|Throttl|Too_?Many_?Requests|Bandwidth_?Limit"
    r"|OperationAborted|NETWORK_CONNECTION|curlCode|timed? ?out|Connection (?:reset|refused|aborted|closed)|Broken pipe"
    r"|IncompleteBody|body error|error sending request|Incomplete_?Read|Unexpected_?Eof"
    r"|HTTP (?:status )?(?:408|425|429|499|5\d\d)|status code: (?:408|425|429|499|5\d\d)"
    # Google's client, Azure, HDFS.
    r"|google::cloud::Status\((?:UNAVAILABLE|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|INTERNAL)|Server_?Busy"
    r"|StandbyException|SafeModeException|RetriableException",
    re.IGNORECASE,
)
_PLACES = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s)'\"]*|'[^']*/[^']*'|(?<![\w<])/[^\s)'\"]*", re.IGNORECASE)
"""Paths and addresses in an error's text. They are not searched: a table called `expired_tokens` says nothing about tokens."""
_NUMBERS = {
    errno.ENOENT: StorageFailure.ABSENT,
    errno.EACCES: StorageFailure.DENIED,
    errno.EPERM: StorageFailure.DENIED,
    errno.EROFS: StorageFailure.DENIED,
    errno.ENOSPC: StorageFailure.FULL,
    errno.EDQUOT: StorageFailure.FULL,
    **dict.fromkeys(
        (
            errno.ECONNRESET,
            errno.ECONNREFUSED,
            errno.ECONNABORTED,
            errno.ETIMEDOUT,
            errno.EPIPE,
            errno.EHOSTUNREACH,
            errno.ENETUNREACH,
            errno.ENETDOWN,
            errno.ESTALE,
            errno.EAGAIN,
        ),
        StorageFailure.PASSING,
    ),
}


def storage_failure(error: BaseException) -> StorageFailure:
    """Return what an error means.

    The service's own code counts first, then the operating system's error number, then the error's type, then the HTTP status.
    """
    text = _PLACES.sub("", str(error))
    for pattern, kind in ((_REGION, StorageFailure.REGION), (_CREDENTIALS, StorageFailure.CREDENTIALS), (_BUCKET, StorageFailure.BUCKET)):
        if pattern.search(text):
            return kind
    number = getattr(error, "errno", None)
    if number in _NUMBERS:
        return _NUMBERS[number]
    if "No space left" in text:
        return StorageFailure.FULL
    if isinstance(error, FileNotFoundError):
        return StorageFailure.ABSENT
    if isinstance(error, PermissionError):
        return StorageFailure.DENIED
    if isinstance(error, (ConnectionError, TimeoutError)):
        return StorageFailure.PASSING
    for pattern, kind in ((_DENIED, StorageFailure.DENIED), (_PASSING, StorageFailure.PASSING), (_ABSENT, StorageFailure.ABSENT)):
        if pattern.search(text):
            return kind
    return StorageFailure.OTHER


def needs_a_person(kind: StorageFailure) -> bool:
    """Return whether a person must change a right, a key, a bucket or a region before any work on the table can succeed."""
    return kind in _ADVICE


def advice(kind: StorageFailure) -> str:
    """Return what a person must do about a kind for which `needs_a_person` is true. Raises KeyError for any other kind."""
    return _ADVICE[kind]


_ADVICE = {
    StorageFailure.DENIED: "permission denied; the process that merges must be able to read and write the table's files",
    StorageFailure.CREDENTIALS: "the store does not accept the key or the token; renew it, or correct the catalog's properties",
    StorageFailure.BUCKET: "the store has no such bucket; correct 's3.endpoint' in the catalog's properties, or make the bucket",
    StorageFailure.REGION: "the bucket is in another region; set 's3.region' in the catalog's properties to the bucket's own",
}
