"""The type of the fixture `tick`, which evaluates a sensor as the daemon does, and what a tick says."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

Tick = Callable[..., dg.SensorResult]


def reason(result: dg.SensorResult) -> str:
    """The skip reason of a tick; empty without one."""
    return result.skip_reason.skip_message or "" if result.skip_reason else ""
