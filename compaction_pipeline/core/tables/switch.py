"""Whether a person lets a table be compacted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSwitch:
    """Written by the commands `pause` and `resume` alone."""

    paused: bool = False
