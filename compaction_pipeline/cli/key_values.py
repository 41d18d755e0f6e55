"""Reads the options `-p KEY=VALUE` of commands."""

from __future__ import annotations

from collections.abc import Iterable

from compaction_pipeline.core.errors import ConfigError


def key_values(texts: Iterable[str], example: str) -> dict[str, str]:
    """Return the values by key. Raises ConfigError for a text without a key, with this example, and for a key that is given twice."""
    parsed: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            # The text may hold a secret, so the error tells only its length.
            raise ConfigError(f"a -p of {len(text)} characters is not key=value, e.g. -p {example}")
        if key.strip() in parsed:
            raise ConfigError(f"-p {key.strip()}=… is given twice: give it once")
        parsed[key.strip()] = value
    return parsed
