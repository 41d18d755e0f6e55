"""What a task was predicted to write and to cost, before it was merged. It says which figures are compared with what is found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """The bytes that a task was predicted to write, and its GB-hours. None is unknown: nobody could predict it, or nobody noted it, as in
    earlier releases."""

    size_bytes: int | None = None
    gb_hours: float | None = None
