"""References to secrets in the properties of catalogs: `env:NAME` and `file:PATH`, each as a whole value.

The state database keeps the reference. The process that opens the catalog looks up the value, each time that it uses the catalog.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from compaction_pipeline.core.secrets.keys import is_secret

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# `file:/lake` is also a way to write a place. Such a value is a place where the key names one.
_PLACE = re.compile(r"(warehouse|location|path|dir|folder)$", re.IGNORECASE)
OF_TABLES = "table."
"""Properties with this prefix are those of tables. They are no credentials, and hold no references."""


class Source(str, Enum):
    """Where the value of a reference lies."""

    ENV = "env"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Reference:
    """A value that lies elsewhere: `name` is that of an environment variable, or a path."""

    source: Source
    name: str

    def __str__(self) -> str:
        return f"{self.source.value}:{self.name}"

    @property
    def problem(self) -> str | None:
        """What is wrong with the reference itself. It may be a secret that begins like a reference, so this does not repeat it."""
        if self.source is Source.ENV and not _NAME.fullmatch(self.name):
            return "begins with 'env:', but after it there must be the name of a variable, of letters, digits and '_'"
        return None


def reference_of(key: str, value: str) -> Reference | None:
    """The reference that is the whole value of this property; None when the value is no reference.

    `file://…` is a URL, and the value of a key that names a place, such as `warehouse`, is that place.
    """
    if key.startswith(OF_TABLES):
        return None
    if value.startswith("env:"):
        return Reference(Source.ENV, value[4:])
    if value.startswith("file:") and not value.startswith("file://") and len(value) > 5 and not _PLACE.search(key):
        return Reference(Source.FILE, value[5:])
    return None


def misspelt_reference(key: str, value: str) -> str | None:
    """Why a value is no reference although its writer meant one; None for every other value. The value is not repeated."""
    kind, colon, name = value.partition(":")
    small = f"{kind.strip().lower()}:{name}"
    if key.startswith(OF_TABLES) or not colon or kind.strip().lower() not in [one.value for one in Source] or name.startswith("//"):
        return None
    if reference_of(key, value) is None and not _PLACE.search(key) and (not name or reference_of(key, small) is not None):
        return (
            f"the value of '{key}' begins with '{kind.strip()}:', but a reference is env:NAME or file:PATH, in small letters, with "
            "a name behind it and no blank before it; a secret that begins so is given by a file"
        )
    return None


def references_in(properties: Mapping[str, str]) -> Mapping[str, Reference]:
    """The references among these properties, by key."""
    found = {key: reference_of(key, value) for key, value in properties.items()}
    return {key: reference for key, reference in found.items() if reference is not None}


# Code that is loaded, programs that are run and files of the server's host that are sent as proof of who the server is.
_RUNS_CODE = re.compile(r"(^py-|-impl$|\.impl$|credential[-_.]process|signer|entry[-_.]?point|class$)", re.IGNORECASE)
_FILE_OF_HOST = re.compile(
    r"(^ssl\.|keytab|krb5|cert|(credentials?|key|token|secrets?)[-_.]?(path|file)$|profile[-_.]?name$)", re.IGNORECASE
)
# Keys that say who is sent the secrets of a catalog.
_ADDRESS = re.compile(r"(uri|url|endpoint|proxy|host|account-name|authority|resolver)([-_.][a-z]+)?$", re.IGNORECASE)


def refused_of_caller(asked: Mapping[str, str | None], held: Mapping[str, str] | None = None) -> Mapping[str, str]:
    """Which of these properties a caller over HTTP may not set, each with the rule that it breaks.

    `asked` are the properties that the caller wants to set; None removes one. `held` are those that the catalog has now, secrets and
    references included; None for a new catalog. A caller chooses no reference, because it could send what the server's environment and
    files hold to a host of its own. For the same reason it changes no address of a catalog that has secrets, unless it gives each of these
    secrets anew. Nor does it name code to load, or files of the server's host.
    """
    held = held or {}
    return {key: rule for key, value in asked.items() if (rule := _rule_for_caller(key, value, asked, held)) is not None}


def _rule_for_caller(key: str, value: str | None, asked: Mapping[str, str | None], held: Mapping[str, str]) -> str | None:
    if value == held.get(key):
        return None
    if _RUNS_CODE.search(key):
        return "names code that the server would run; set it on the server's host, with the command line or the file of catalogs"
    if _FILE_OF_HOST.search(key):
        return "names a file or a profile of the server's host; set it on that host, with the command line or the file of catalogs"
    if value is not None and reference_of(key, value) is not None:
        return "is a reference to what the server holds; set it on the server's host, or give the value itself, which is stored encrypted"
    kept = sorted(
        each
        for each, secret in held.items()
        if each != key and each not in asked and (is_secret(each, secret) or reference_of(each, secret))
    )
    if kept and not key.startswith(OF_TABLES) and _ADDRESS.search(key):
        return f"says where secrets of the catalog go; give {', '.join(kept)} anew in the same request, or change it on the server's host"
    return None
