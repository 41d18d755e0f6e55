"""Texts for people about health scores: the number, its parts and its sentences."""

from __future__ import annotations

from rich.text import Text

from compaction_pipeline.core.fragmentation.health_score import HealthScore


def score_line(score: HealthScore) -> Text:
    """The score of a table with its parts and its sentences."""
    return Text(f"health score {score.text}")


def score_cell(score: HealthScore) -> str:
    """The number alone. The same line has its sentences, by `with_score`."""
    return "–" if score.total is None else str(score.total)


def with_score(reason: str, score: HealthScore) -> str:
    """The reason of the health, and below it what stands behind the score."""
    return f"{reason}\nscore: {score.reason}; {score.advice}"
