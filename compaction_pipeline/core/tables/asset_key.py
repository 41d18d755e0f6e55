"""The key of the Dagster asset that stands for a table in somebody's own project, as a person writes it."""

from __future__ import annotations

ASSET_KEY_RULE = "levels separated by '/', none of them empty"


def asset_key_levels(text: str) -> tuple[str, ...]:
    """Return the levels of an asset key such as `analytics/orders`. Raises ValueError for a text that breaks ASSET_KEY_RULE."""
    levels = tuple(level.strip() for level in text.split("/"))
    if not all(levels):
        raise ValueError(text)
    return levels


def asset_key_text(levels: tuple[str, ...]) -> str:
    """Return the key as a person writes it."""
    return "/".join(levels)
