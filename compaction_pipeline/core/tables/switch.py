"""Whether a person lets a table be compacted."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableSwitch:
    """Whether a person has paused the table. Only `services/tables/explore_catalogs.py` writes it."""

    paused: bool = False
