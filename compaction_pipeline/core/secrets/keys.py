"""Which properties hold secrets, by their keys and by the forms of their values. In doubt it takes a value for a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, unquote_plus

MASK = "***"

_SECRET_KEY = re.compile(
    r"passw(or)?d|pwd|passphrase|secret|token|credential|authorization|cookie|(account|api|private|sse)[-_.]?key"
    r"|connection[-_.]?string|access[-_.]?key(?![-_.]?id)",
    re.IGNORECASE,
)
# `token-refresh-enabled` and `credentials-path` name secrets, and hold none.
_TELLS_OF_SECRETS = re.compile(
    r"(enabled|expires-at|expires-at-ms|expires-in|ms|seconds|type|path|file|uri|url|endpoint|scope)$", re.IGNORECASE
)
_URL_PASSWORD = re.compile(r"(://[^/:@\s]*):(\S*)@")
_URL_QUERY_SECRET = re.compile(
    r"([?&;][^=&;\s]*(?:passw(?:or)?d|secret|token|credential|signature|sig)[^=&;\s]*=)([^&;\s]+)", re.IGNORECASE
)

_HEADER = "header."
_PLAIN_HEADERS = frozenset({"accept", "content-type", "user-agent", "x-iceberg-access-delegation", "x-client-version", "polaris-realm"})
"""The headers that hold no secret. Every gateway has a name of its own for its key, so all others count as secrets."""


def is_secret_key(key: str) -> bool:
    """Whether the key says that its value is a secret, or about a secret. Such values are never shown."""
    return _is_secret_header(key) or _SECRET_KEY.search(key) is not None


def is_secret(key: str, value: str) -> bool:
    """Whether the value is a secret, or a URL with one in it. Such values are stored encrypted.

    A key that only tells of a secret, such as `token-refresh-enabled`, has no secret.
    """
    if _holds_secret(key) and value.lower() not in ("", "true", "false"):
        return True
    return without_url_secrets(value) != value


def without_url_secrets(text: str) -> str:
    """The text with `***` in place of passwords and other secrets inside URLs."""
    return _URL_QUERY_SECRET.sub(rf"\g<1>{MASK}", _URL_PASSWORD.sub(rf"\g<1>:{MASK}@", text))


def secret_values(properties: Mapping[str, str]) -> frozenset[str]:
    """The secrets themselves: whole values, the parts of `id:secret` and `Bearer token`, and those inside URLs, as written and decoded."""
    return frozenset(part for key, value in properties.items() if is_secret(key, value) for part in _parts(key, value) if part)


def _parts(key: str, value: str) -> Iterator[str]:
    inside = [match[2] for pattern in (_URL_PASSWORD, _URL_QUERY_SECRET) for match in pattern.finditer(value)]
    for part in inside:
        yield from (part, unquote(part), unquote_plus(part))
    if _holds_secret(key):
        named = value.partition(":")[2]
        # The first half of `id:secret` is a name, which stands in many texts.
        yield named if key.lower() == "credential" and named else value
        if not inside:
            yield named
            yield value.rpartition(" ")[2]


def _holds_secret(key: str) -> bool:
    return _is_secret_header(key) or (_SECRET_KEY.search(key) is not None and not _TELLS_OF_SECRETS.search(key))


def _is_secret_header(key: str) -> bool:
    return key.lower().startswith(_HEADER) and key[len(_HEADER) :].strip().lower() not in _PLAIN_HEADERS
