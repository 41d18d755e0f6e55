"""How `process.py` delays interrupts."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from compaction_pipeline.process import undisturbed


class Ended(BaseException):
    """Raised by the program's own signal handler."""


@pytest.fixture(autouse=True)
def handled() -> Iterator[None]:
    def end(number: int, frame: object) -> None:
        raise Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_waits_for_the_end_of_a_block_and_is_then_handled_as_usual(number: int) -> None:
    steps = []

    def work() -> None:
        with undisturbed():
            with undisturbed():
                signal.raise_signal(number)
                steps.append("inner block")
            steps.append("outer block")

    with pytest.raises(Ended):
        work()
    assert steps == ["inner block", "outer block"]
    with pytest.raises(Ended):
        signal.raise_signal(number)


def test_a_second_interrupt_gets_through_at_once() -> None:
    steps = []

    def work() -> None:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
            steps.append("first")
            signal.raise_signal(signal.SIGINT)
            steps.append("second")

    with pytest.raises(Ended):
        work()
    assert steps == ["first"]


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with undisturbed():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
