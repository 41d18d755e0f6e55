"""A tick that is broken off when `dagster dev` ends: Dagster itself waits for it, half a minute long."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import dagster as dg

from compaction_pipeline.ending.dagster_dev import Abandoned, abandoned_when, end_server_with_it, ends_soon

P = ParamSpec("P")
T = TypeVar("T")
BROKEN_OFF = "dagster dev ends: this tick was broken off, and the next one does its work"


def abandoned_when_dagster_ends(tick: Callable[P, T]) -> Callable[P, T | dg.SkipReason]:
    """The sensor's function, which answers at once when `dagster dev` ends around it; its cursor stays, so nothing is passed over."""

    @wraps(tick)
    def evaluate(*arguments: P.args, **named: P.kwargs) -> T | dg.SkipReason:
        event = ends_soon()
        if event is None:
            return tick(*arguments, **named)
        end_server_with_it()
        try:
            return abandoned_when(event, lambda: tick(*arguments, **named))
        except Abandoned:
            return dg.SkipReason(BROKEN_OFF)

    return evaluate
