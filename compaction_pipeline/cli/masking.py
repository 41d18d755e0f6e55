"""Hides the secrets of catalog properties before anybody sees them. Rather hides too much than too little."""

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
    """The properties, with secrets replaced by `***`: whole values of secret keys, passwords inside URLs."""
    return {key: MASK if _SECRET_KEY.search(key) else masked_text(value) for key, value in properties.items()}


def masked_text(text: str) -> str:
    """A text without the passwords of the URLs in it."""
    return _URL_QUERY_SECRET.sub(rf"\g<1>{MASK}", _URL_PASSWORD.sub(rf"\g<1>:{MASK}@", text))
