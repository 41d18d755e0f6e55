"""Hides the secrets of the properties of catalogs and groups before anybody sees them. In doubt it hides too much."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

_SECRET_KEY = re.compile(
    r"password|passwd|secret|token|credential|authorization|account-key|api-key|private-key|connection-string|access-key(?!-id)",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(://[^/:@\s]*):\S*@")
_URL_QUERY_SECRET = re.compile(r"([?&;][^=&;\s]*(?:password|secret|token|credential|signature|sig)[^=&;\s]*=)[^&;\s]+", re.IGNORECASE)


def masked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties with `***` in place of secrets: the whole value of a secret key, and passwords inside URLs."""
    return {key: MASK if _SECRET_KEY.search(key) else masked_text(value) for key, value in properties.items()}


def masked_text(text: str) -> str:
    """The text with `***` in place of passwords and other secrets inside URLs."""
    return _URL_QUERY_SECRET.sub(rf"\g<1>{MASK}", _URL_PASSWORD.sub(rf"\g<1>:{MASK}@", text))
