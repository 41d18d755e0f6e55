"""Decides which texts may be names of projects, of jobs and of their receivers."""

from __future__ import annotations

import re
from typing import Any

from compaction_pipeline.core.errors import ConfigError

LONGEST = 200
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9_.\-]{{0,{LONGEST - 1}}}")


def plain_name(key: str, given: Any) -> str:
    """Return a name that was given for this key. Raises ConfigError when it is none."""
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise ConfigError(
            f"'{key}' is {given!r} but must be a name of 1 to {LONGEST} letters, digits, '_', '.' and '-', that begins with a letter, a "
            "digit or '_'"
        )
    return given
