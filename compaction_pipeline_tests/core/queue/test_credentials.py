"""Credentials that end: when they do, when they are asked for anew, and what an attempt says that failed because of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.queue.attempts import AfterAttempt, Tries, after_attempt, is_tried_again
from compaction_pipeline.core.queue.credentials import (
    MOST_EXPIRIES,
    because_credentials_ended,
    credentials_end,
    last_long_enough,
    says_ended,
    too_often,
)
from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline_tests.builders import NOW, task

DENIED = MergeResult("t1", "a1", end_reason=EndReason.NO_ACCESS, error="ExpiredToken")


def moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


@pytest.mark.parametrize(
    ("properties", "end"),
    [
        ({}, None),
        ({"s3.session-token": "x", "s3.session-token-expires-at-ms": "1700000000000"}, moment(1_700_000_000)),
        ({"adls.sas-token-expires-at-ms.account.dfs.core.windows.net": "1700000000000"}, moment(1_700_000_000)),
        ({"gcs.oauth2.token-expires-at": "1700000000000"}, moment(1_700_000_000)),
        ({"s3.session-token-expires-at-ms": "1700000000000", "gcs.oauth2.token-expires-at": "1600000000000"}, moment(1_600_000_000)),
        ({"s3.session-token-expires-at-ms": "soon"}, None),
        ({"s3.session-token-expires-at-ms": ""}, None),
        ({"s3.session-token-expires-at-ms": "9" * 30}, None),
        ({"another.expires-at-ms": "1700000000000"}, None),
    ],
)
def test_the_properties_say_when_the_first_credentials_end(properties: Mapping[str, str], end: datetime | None) -> None:
    assert credentials_end(properties) == end


@pytest.mark.parametrize(
    ("life", "age", "lasts"),
    [
        (timedelta(hours=1), timedelta(minutes=45), True),
        (timedelta(hours=1), timedelta(minutes=46), False),
        (timedelta(minutes=10), timedelta(minutes=5), True),
        (timedelta(minutes=10), timedelta(minutes=6), False),
    ],
)
def test_credentials_are_not_handed_out_with_little_of_their_life_left(life: timedelta, age: timedelta, lasts: bool) -> None:
    assert last_long_enough(NOW + life, NOW, NOW + age) is lasts
    assert last_long_enough(None, NOW, NOW + age)


def test_a_denied_attempt_says_that_its_credentials_had_ended() -> None:
    ended = because_credentials_ended(DENIED, NOW, NOW)
    assert ended.end_reason is EndReason.CREDENTIALS_ENDED
    assert ended.error is not None
    assert ended.error.endswith("while the task was merged: ExpiredToken")
    for ends_at in (None, NOW + timedelta(minutes=2)):
        assert because_credentials_ended(DENIED, ends_at, NOW) == DENIED
    failed = MergeResult("t1", "a1", error="the disk is full")
    assert because_credentials_ended(failed, NOW, NOW) == failed


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("ExpiredToken", True),
        ("new file s3://lake/t/a.parquet: HTTP status 400 (ExpiredToken: The provided token has expired.)", True),
        ("AWS Error EXPIRED_TOKEN during PutObject", True),
        ("file s3://lake/ExpiredToken/a.parquet: AccessDenied", False),
        ("AccessDenied", False),
    ],
)
def test_the_words_of_a_store_may_say_that_a_token_ended(error: str, says: bool) -> None:
    assert says_ended(MergeResult("t1", "a1", end_reason=EndReason.NO_ACCESS, error=error)) is says
    assert not says_ended(MergeResult("t1", "a1", end_reason=EndReason.FAILED, error=error))


def test_credentials_that_ended_use_up_no_retry_until_it_was_too_often() -> None:
    ended = because_credentials_ended(DENIED, NOW, NOW)
    after = after_attempt(Tries(0, 4), 1, ended.end_reason, NOW, timedelta(seconds=60))
    assert after == AfterAttempt(TaskStatus.PENDING, Tries(0, 0))
    assert too_often(ended, MOST_EXPIRIES - 1) == ended
    assert too_often(ended, MOST_EXPIRIES).end_reason is EndReason.NO_ACCESS
    assert too_often(DENIED, MOST_EXPIRIES) == DENIED
    # The worker reported ended credentials, but the server counted a failure.
    assert not is_tried_again(task(status=TaskStatus.FAILED, result=ended, max_attempts=1))
    assert is_tried_again(task(status=TaskStatus.PENDING, result=ended, max_attempts=1))
