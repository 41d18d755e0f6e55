"""Attempts end when one has won, when its policy allows no more, or when nobody knows how it ended."""

from __future__ import annotations

import itertools

import pytest

from compaction_pipeline.iceberg.commit.attempts import LostRace, RetryPolicy, until_won

PROPERTIES = {
    "commit.retry.num-retries": "3",
    "commit.retry.min-wait-ms": "200",
    "commit.retry.max-wait-ms": "500",
    "commit.retry.total-timeout-ms": "60000",
}


def paused(policy: RetryPolicy, jitter: float) -> tuple[int, list[float]]:
    """How many attempts are made when each one loses, and the pauses between them in seconds."""
    pauses: list[float] = []
    lost = until_won(lambda number: LostRace(policy, number), pauses.append, lambda: jitter)
    assert isinstance(lost, LostRace)
    return lost.attempts, pauses


@pytest.mark.parametrize(("jitter", "pauses"), [(0.0, [0.1, 0.2, 0.25]), (0.5, [0.2, 0.4, 0.5]), (1.0, [0.3, 0.6, 0.75])])
def test_a_compaction_pauses_as_its_table_says(jitter: float, pauses: list[float]) -> None:
    assert paused(RetryPolicy.of_table(PROPERTIES), jitter) == (4, pytest.approx(pauses))


def test_a_table_that_says_nothing_or_nonsense_has_the_defaults_of_iceberg() -> None:
    for properties in ({}, {"commit.retry.num-retries": "-1", "commit.retry.min-wait-ms": "soon"}):
        policy = RetryPolicy.of_table(properties)
        assert (policy.retries, policy.total_timeout_ms) == (4, 1_800_000)
        assert [policy.pause_ms(lost, 0.5) for lost in (1, 2, 3, 100)] == [100, 200, 400, 60_000]


@pytest.mark.parametrize(("jitter", "seconds"), [(0.0, 0.01), (1.0, 0.05)])
def test_a_writer_pauses_longer_each_time(jitter: float, seconds: float) -> None:
    assert paused(RetryPolicy.WRITER, jitter) == (20, pytest.approx([seconds * lost for lost in range(1, 20)]))


def test_a_table_without_time_gets_one_attempt() -> None:
    policy = RetryPolicy.of_table({**PROPERTIES, "commit.retry.total-timeout-ms": "0"})
    assert paused(policy, 0.5) == (1, [])


def test_the_policy_of_the_last_attempt_counts() -> None:
    fewer = RetryPolicy.of_table({**PROPERTIES, "commit.retry.num-retries": "1"})
    policies = itertools.chain([RetryPolicy.of_table(PROPERTIES)], itertools.repeat(fewer))
    lost = until_won(lambda number: LostRace(next(policies), number), lambda seconds: None, lambda: 0.5)
    assert lost == LostRace(fewer, 2)


def test_what_is_no_lost_race_ends_the_attempts() -> None:
    policy = RetryPolicy.of_table(PROPERTIES)
    assert until_won(lambda number: number if number == 3 else LostRace(policy, number), lambda seconds: None, lambda: 0.5) == 3
