"""Breaks a sensor's tick off when `dagster dev` ends. Without this, Dagster would wait half a minute for the tick."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import dagster as dg

from compaction_pipeline.ending.dagster_dev import Abandoned, abandoned_when, end_server_with_it, ends_soon

P = ParamSpec("P")
T = TypeVar("T")
BROKEN_OFF = "dagster dev is ending: this tick was broken off, and the next tick does its work"


def abandoned_when_dagster_ends(tick: Callable[P, T]) -> Callable[P, T | dg.SkipReason]:
    """Wrap a sensor's function, so that it answers at once when `dagster dev` ends. Its cursor stays, so no work is skipped."""

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
