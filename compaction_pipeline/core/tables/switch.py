"""Whether a person lets a table be compacted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSwitch:
    """Whether a person has paused the table. Only `services/tables/pause_tables.py` writes it."""

    paused: bool = False
