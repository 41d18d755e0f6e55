"""Decides from what the JVM of a Spark driver tells of its garbage collections whether the driver needs more memory.

Both figures that it tells are totals of one clock, so a touch that is late, repeated or left out changes no share. A share is observed over
a minute at least, and one that was high in `OBSERVATIONS` of them in a row calls for more memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LONGEST_SECONDS = 1e9
"""No JVM runs for longer than this."""
MOST_SHARE = 0.1
OBSERVATIONS = 3
_OBSERVED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DriverGc:
    """`gc_seconds` of collections in the `up_seconds` since the JVM started, as they were at the last observation.

    `share` is the part of the time between the last two observations, from 0 to 1; None before there was one. `high` counts how many
    observations in a row were above `MOST_SHARE`.
    """

    gc_seconds: float
    up_seconds: float
    share: float | None = None
    high: int = 0

    @property
    def needs_memory(self) -> bool:
        """Whether collections took so much time for so long that the driver needs more memory."""
        return self.high >= OBSERVATIONS


def observed(before: DriverGc | None, told: DriverGc) -> DriverGc:
    """What is known of a driver after it told these totals. A JVM that has started again begins anew."""
    if before is None or told.up_seconds < before.up_seconds or told.gc_seconds < before.gc_seconds:
        return DriverGc(told.gc_seconds, told.up_seconds)
    passed = told.up_seconds - before.up_seconds
    if passed < _OBSERVED_SECONDS:
        return before
    share = min((told.gc_seconds - before.gc_seconds) / passed, 1.0)
    return replace(told, share=share, high=before.high + 1 if share > MOST_SHARE else 0)
