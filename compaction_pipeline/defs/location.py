"""All that the code location offers, in one `Definitions`. Opens nothing."""

from __future__ import annotations

import dagster as dg


def definitions() -> dg.Definitions:
    """Assets, checks, jobs, sensors, schedules and the resource that they share."""
    return dg.Definitions()
