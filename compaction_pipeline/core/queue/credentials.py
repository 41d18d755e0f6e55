"""Decides about credentials that end: when those of a table's FileIO properties end, and whether a task is handed out with them.

A catalog that vends credentials says in the properties when they end. The keys are those of Iceberg's S3FileIO, ADLSFileIO and GCSFileIO,
and the values are milliseconds since 1970. Properties without such a key hold credentials that do not end, as far as anybody can tell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.tables.kinds import CHANGE_STORE_IO
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult

ENOUGH_LEFT = timedelta(minutes=15)
"""A task is handed out with credentials when at least this much is left, because a merge may take that long.

Of credentials that last less than twice this, half of their life is enough.
"""
MOST_EXPIRIES = 3
"""At most this many attempts of a task may end because their credentials ended, without using up a retry."""
_APART = timedelta(minutes=1)
"""The clocks of the store and of a worker may differ by this much."""
_ENDS = re.compile(
    r"s3\.session-token-expires-at-ms|adls\.sas-token-expires-at-ms\..+|gcs\.oauth2\.token-expires-at"
    r"|hdfs\.kerberos-credential-expires-at-ms"
)
_ENDED = re.compile(r"Expired_?Token|Token_?Refresh_?Required", re.IGNORECASE)
"""The codes of S3 for it."""
_PATHS = re.compile(r"\S*[/]\S*")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def credentials_end(file_io: Mapping[str, str]) -> datetime | None:
    """Return when the first of the credentials ends; None when no property says it. A value that is no number says nothing."""
    ends = [int(value) for key, value in file_io.items() if _tells_end(key) and value.isascii() and value.isdigit()]
    try:
        return _EPOCH + timedelta(milliseconds=min(ends)) if ends else None
    except OverflowError:
        return None


def _tells_end(key: str) -> bool:
    return _ENDS.fullmatch(key.removeprefix(CHANGE_STORE_IO)) is not None


def last_long_enough(ends_at: datetime | None, asked_at: datetime, now: datetime) -> bool:
    """Return whether a task may be handed out with credentials that the catalog gave at `asked_at`."""
    return ends_at is None or ends_at - now >= min(ENOUGH_LEFT, (ends_at - asked_at) / 2)


def because_credentials_ended(result: MergeResult, ends_at: datetime | None, now: datetime) -> MergeResult:
    """Return the result of an attempt. When the store denied access after its credentials had ended, the result says so."""
    if result.end_reason is not EndReason.NO_ACCESS or ends_at is None or now < ends_at - _APART:
        return result
    error = f"the credentials that the catalog gave ended at {ends_at:%Y-%m-%d %H:%M:%S} UTC, while the task was merged: {result.error}"
    return replace(result, end_reason=EndReason.CREDENTIALS_ENDED, error=error)


def says_ended(result: MergeResult) -> bool:
    """Return whether the store denied access with words that name an ended token, whatever the catalog had told of its end.

    A catalog need not tell it. Names of files do not count: a table called `expired_tokens` says nothing about tokens.
    """
    return result.end_reason is EndReason.NO_ACCESS and _ENDED.search(_PATHS.sub("", result.error or "")) is not None


def too_often(result: MergeResult, before: int) -> MergeResult:
    """Return a result that counts as a failure when the credentials of `before` earlier attempts of the task ended too."""
    if result.end_reason is not EndReason.CREDENTIALS_ENDED or before < MOST_EXPIRIES:
        return result
    return replace(result, end_reason=EndReason.NO_ACCESS)
