"""What follows from what a container answers, and that nothing follows when it does not answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.core.queue.container import Container, ContainerKind
from compaction_pipeline.core.queue.container_answers import Room, Running, Size, Unknown, dead_of, no_room_text, room_of, size_of
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer, OptimizerState
from compaction_pipeline_tests.builders import NOW

WORKERS = Container("workers", ContainerKind.LOCAL, {"max-memory": "8g", "max-cores": "6"})
HEAVY = ResourceGroup("heavy", "workers", {"parallelism": "2", "memory": str(3 * 2**30)})
STARTING = OptimizerState.STARTING


def one(name: str, state: OptimizerState, *, host: str = "here", container: str = "workers") -> Optimizer:
    return Optimizer(
        name, "heavy", host, "", "1", 2, NOW, NOW, state, memory_bytes=3 * 2**30, resource_id=f"r-{name}", container=container, settings="s"
    )


@given(
    memory=st.none() | st.integers(-9, 99),
    cores=st.none() | st.integers(-9, 99),
    size=st.builds(Size, st.integers(0, 9), st.integers(1, 9)),
    wanted=st.integers(0, 20),
)
def test_what_may_be_started_fits_and_one_more_would_not(memory: int | None, cores: int | None, size: Size, wanted: int) -> None:
    count = Room(memory, cores).holds(size, wanted)
    assert 0 <= count <= wanted

    def fits(number: int) -> bool:
        parts = ((memory, size.memory), (cores, size.millicores))
        return all(free is None or (each > 0 and number * each <= free) for free, each in parts)

    assert count == 0 or fits(count)
    assert count == wanted or not fits(count + 1)


def test_the_room_of_a_container_is_what_its_bounds_and_the_world_leave_on_this_host() -> None:
    rows = [one("a", OptimizerState.RUNNING), one("b", OptimizerState.DRAINING), one("c", STARTING, host="there")]
    rows += [one("d", OptimizerState.LOST), one("e", OptimizerState.ENDED), one("f", STARTING, container="others")]
    assert room_of(WORKERS, Room(), rows, frozenset(), "here") == Room(2 * 2**30, 2000)
    # A process that was taken for lost takes its memory until it ends.
    assert room_of(WORKERS, Room(), rows, frozenset({"r-d"}), "here") == Room(-(2**30), 0)
    # It registered anew, so it has two rows.
    again = [*rows, replace(one("g", OptimizerState.RUNNING), resource_id="r-d")]
    assert room_of(WORKERS, Room(), again, frozenset({"r-d"}), "here") == Room(-(2**30), 0)
    unbounded = replace(WORKERS, properties={})
    assert room_of(unbounded, Room(), rows, frozenset(), "here") == Room()
    assert room_of(unbounded, Room(memory=5), rows, frozenset(), "here") == Room(5)
    assert room_of(WORKERS, Room(2**40, 1000), rows, frozenset(), "here") == Room(2 * 2**30, 1000)


def test_the_reason_says_what_is_needed_and_what_is_free() -> None:
    assert size_of(WORKERS, HEAVY) == Size(3 * 2**30, 2000)
    assert no_room_text(WORKERS, HEAVY, Room(2 * 2**30, 0), NOW) == (
        "container workers has no room for another optimizer of group heavy: it needs 3.2 GB of memory and 2 cores, and at "
        f"{NOW:%H:%M:%S} UTC 2.1 GB of memory and 0 cores were free; end other optimizers of the container, make these smaller, or raise "
        "its bounds"
    )
    text = no_room_text(WORKERS, HEAVY, Room(None, 1500), NOW)
    assert "it needs 2 cores, and" in text
    assert "1.5 cores were free" in text
    without = replace(HEAVY, properties={})
    assert "nobody knows how much an optimizer needs: set it with" in no_room_text(WORKERS, without, Room(2**30, 0), NOW)


@pytest.mark.parametrize(
    ("row", "answer", "dead"),
    [
        (one("a", STARTING), Running(), True),
        (one("a", STARTING), Running(alive=frozenset({"r-a"})), False),
        (one("a", STARTING, host="there"), Running(), False),
        (one("a", STARTING, host="there"), Running(ended=frozenset({"r-a"})), True),
        (one("a", STARTING), Running(frozenset({"r-a"}), frozenset({"r-a"})), False),
        (one("a", STARTING), Unknown("no answer"), False),
        (one("a", STARTING, container="others"), Running(), False),
        (one("a", OptimizerState.RUNNING), Running(ended=frozenset({"r-a"})), False),
    ],
)
def test_only_a_container_that_answers_tells_that_an_optimizer_will_not_come(row: Optimizer, answer: Running | Unknown, dead: bool) -> None:
    assert dead_of([row], {"workers": answer}, "here") == ((row,) if dead else ())


def test_an_optimizer_of_memory_that_nobody_knows_is_not_started_beside_a_bound() -> None:
    assert Room(memory=10**9).holds(Size(0, 1), 2) == 0
    assert Room(millicores=5).holds(Size(0, 2), 3) == 2
