"""Refusals wait when there are many of them, and nothing else does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from compaction_pipeline.api.slow_refusals import A_SECOND, LONGEST_SECONDS, REFUSED, Refusals, SlowRefusals


class Seconds:
    """A clock that stands still until somebody moves it."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_refusals_of_a_second_wait_for_nothing_and_later_ones_longer_and_longer() -> None:
    refusals = Refusals(Seconds())
    waits = [refusals.wait_seconds() for _ in range(1_000)]
    assert set(waits[: int(A_SECOND) + 1]) == {0.0}
    assert waits == sorted(waits)
    assert waits[30] > 0
    assert waits[-1] == LONGEST_SECONDS


def test_a_server_forgets_within_ten_seconds() -> None:
    clock = Seconds()
    refusals = Refusals(clock)
    for _ in range(100_000):
        refusals.wait_seconds()
    clock.now = 10
    assert refusals.wait_seconds() == 0


@pytest.mark.parametrize("parallel", [4, 20])
def test_clients_that_ask_again_at_once_get_few_refusals(parallel: int) -> None:
    """They ask again as soon as they were refused, for a minute."""
    clock = Seconds()
    refusals = Refusals(clock)
    due = [0.0] * parallel
    asked = 0
    while min(due) < 60:
        clock.now = min(due)
        due[due.index(clock.now)] = clock.now + refusals.wait_seconds() + 0.001
        asked += 1
    assert asked / 60 < 1.3 * A_SECOND


@pytest.mark.parametrize("length", [b"", b"65536", b"65537"])
@pytest.mark.parametrize("status", [200, 404, 409, 503, *sorted(REFUSED)])
def test_only_refusals_wait_and_not_those_of_large_bodies(status: int, length: bytes) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message["type"])

    scope = {"type": "http", "headers": [(b"content-length", length)]}
    asyncio.run(SlowRefusals(app, Refusals(Seconds()), sleep)(scope, None, send))  # type: ignore[arg-type]
    assert sent == ["http.response.start", "http.response.body"]
    assert len(slept) == (status in REFUSED and length != b"65537")
