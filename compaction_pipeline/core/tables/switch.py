"""Whether a person lets a table be compacted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSwitch:
    """Whether a person has paused the table. Only the commands `pause` and `resume` write it."""

    paused: bool = False
