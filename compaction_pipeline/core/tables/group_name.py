"""The rule for names of resource groups. A table names its group in a property, and an optimizer names the one that it works for."""

from __future__ import annotations

import re

DEFAULT_GROUP = "default"
"""The group of tables that name none. It exists always."""
GROUP_NAME_RULE = "1 to 64 letters, digits, '_' and '-', of which the first is a letter or a digit"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def is_group_name(text: object) -> bool:
    """Return whether a text keeps `GROUP_NAME_RULE`."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
