"""A server is killed before and after each step of an action, and another one goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import compaction_pipeline
from compaction_pipeline.core.capacity.scaling.action import ActionKind, Outcome
from compaction_pipeline.core.capacity.scaling.record import ScalingRecord, Step
from compaction_pipeline.core.capacity.scaling.target import Target
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.capacity.scale_groups import ScaleGroups
from compaction_pipeline.services.queue.maintain_optimizers import MaintainOptimizers
from compaction_pipeline_tests.services.capacity.test_scale_groups import MINUTE, Scaled, at_work
from compaction_pipeline_tests.services.queue.hall import DRAINING, RUNNING, STARTING


@dataclass
class Kill:
    """Kills the server at the first call of `method` whose arguments fit, before or after it."""

    method: str
    fits: Callable[..., bool]
    after: bool
    killed: bool = field(default=False)


class Killing:
    """A port of a server that is killed."""

    def __init__(self, port: object, kill: Kill) -> None:
        self._port, self._kill = port, kill

    def __getattr__(self, name: str) -> Any:
        real, kill = getattr(self._port, name), self._kill
        if name != kill.method:
            return real

        def call(*args: Any, **options: Any) -> Any:
            if kill.killed or not kill.fits(*args, **options):
                return real(*args, **options)
            kill.killed = True
            if kill.after:
                real(*args, **options)
            raise KeyboardInterrupt

        return call


def _record(fits: Callable[[ScalingRecord], bool]) -> Callable[..., bool]:
    return lambda scale, record=None: record is not None and fits(record)


STEPS: dict[str, tuple[str, Callable[..., bool]]] = {
    "asked": ("change", _record(lambda record: record.is_open and record.step is Step.ASKED)),
    "row": ("begin", lambda *_: True),
    "start": ("start", lambda *_: True),
    "drain": ("move", lambda optimizer_id, states, to, why, **_: to is DRAINING),
    "ending": ("change", _record(lambda record: record.is_open and record.step is Step.ENDING)),
    "lost": ("move", lambda optimizer_id, states, to, why, **_: to is OptimizerState.LOST),
    "stop": ("stop", lambda *_: True),
    "closed": ("change", _record(lambda record: not record.is_open)),
}


def servers(hall: Scaled, kill: Kill) -> tuple[ScaleGroups, MaintainOptimizers]:
    """Another server, which is killed."""
    stores, own = hall.stores, (lambda: hall.now, lambda: f"k{next(hall._numbers):03d}")
    optimizers, scaling, containers = Killing(stores.optimizers, kill), Killing(stores.scaling, kill), Killing(hall.containers, kill)
    ports: Any = (stores.groups, optimizers, stores.queues)
    scaler = ScaleGroups(*ports, stores.costs, scaling, containers, own)  # type: ignore[arg-type]
    maintainer = MaintainOptimizers(*ports, stores.teams, scaling, containers, own)  # type: ignore[arg-type]
    maintainer.maintain()
    return scaler, maintainer


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("works", [False, True])
def test_another_server_goes_on_where_one_was_killed(stores: Stores, step: str, after: bool, works: bool) -> None:
    hall = at_work(stores)
    good = {each.optimizer_id for each in hall.rows(RUNNING)}
    method, fits = STEPS[step]
    kill = Kill(method, fits, after)
    scaler, maintainer = servers(hall, kill)
    hall.now += MINUTE
    if step == "asked":
        # The policy asks for it by itself, because tasks wait.
        hall.wait_for(40)
    else:
        hall.ask(ActionKind.PARALLELISM, Target(2, 4))
    for _ in range(60):
        hall.now += MINUTE
        for each in hall.rows(RUNNING, DRAINING):
            stores.optimizers.touch(each.optimizer_id, hall.now)
        with suppress(KeyboardInterrupt):
            scaler.scale()
            maintainer.maintain()
        if kill.killed and scaler is not hall.scaler:
            hall.scaler = scaler = hall.another_scaler()
            maintainer = hall.another()
        # A process registers, and without one no row does.
        came = [each for each in hall.rows(STARTING) if each.resource_id in hall.containers.alive]
        if works or step == "drain":
            for each in came:
                hall.register(each)
            hall.poll_all()
        if works or step == "drain":
            hall.end_drained()
        assert len(hall.rows(RUNNING)) >= 2
        assert sum(each.is_open for each in hall.records) <= 1
        if hall.records and not hall.records[-1].is_open and (kill.killed or step in ("lost", "stop", "ending")):
            break
    if step in ("asked", "row", "start", "closed") or (step == "drain" and works) or not works:
        assert kill.killed
    record = hall.records[0]
    if works or step == "drain":
        assert record.outcome in (Outcome.DONE, Outcome.CANCELED, Outcome.PARTIAL)
        assert len(hall.rows(RUNNING)) >= 2
        return
    assert (record.outcome, hall.scale_now.target) == (Outcome.FAILED, record.action.before)
    assert good == {each.optimizer_id for each in hall.rows(RUNNING, STARTING)}
    assert hall.containers.alive == {each.resource_id for each in hall.rows(RUNNING)}


def test_each_step_of_the_contract_is_one_that_a_server_is_killed_at() -> None:
    page = Path(compaction_pipeline.__file__).parent / "core/queue/scaling/CONTRACT.md"
    rows = re.findall(r"^\| (\w+) \|", page.read_text(), re.MULTILINE)
    assert rows[1:] == list(STEPS)
