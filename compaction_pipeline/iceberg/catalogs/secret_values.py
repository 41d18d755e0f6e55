"""Looks up the values that `env:NAME` and `file:PATH` stand for in the properties of a catalog, and notes which values are never shown.

A file must lie below the allowed folder, after links and `..` were followed. Nothing that was looked up is ever stored.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.secrets.keys import is_secret_key, secret_values
from compaction_pipeline.core.secrets.known import KnownSecrets
from compaction_pipeline.core.secrets.references import Reference, Source, references_in
from compaction_pipeline.core.tables.table import CatalogEntry

_MOST_BYTES = 2**20
_VENDED = 16
"""So many tables keep the credentials that a catalog gave for them alone. They are new with each look at a table."""
# What such a key refers to is worth a reference for other reasons than secrecy, and would hide ordinary words.
_NO_SECRET = re.compile(r"(region|endpoint|uri|url|warehouse|prefix|scope|type|name|id|host|user)$", re.IGNORECASE)


class SecretValues:
    """The secrets of the catalogs of one process."""

    def __init__(self, folder: Path | None = None, environment: Mapping[str, str] = os.environ) -> None:
        """`folder` is the one below which files may lie; None allows no file. `environment` holds the variables."""
        self._folder = folder
        self._environment = environment
        self._known = KnownSecrets()
        self._of_tables = KnownSecrets(_VENDED)

    def resolved(self, entry: CatalogEntry) -> CatalogEntry:
        """The catalog with values in place of references. Its secrets are hidden in all texts of this process from now on.

        Raises ConfigError when a variable is not set, and when a file is missing, lies elsewhere or holds no text.
        """
        references = references_in(entry.properties)
        found = {key: self._value(entry.name, key, reference) for key, reference in references.items()}
        properties = {**entry.properties, **found}
        hidden = {value for key, value in found.items() if is_secret_key(key) or not ("://" in value or _NO_SECRET.search(key))}
        self._known.know(entry.name, hidden | secret_values(properties))
        return replace(entry, properties=properties) if found else entry

    def forget(self, catalog: str) -> None:
        """Show the secrets of this catalog again. It was removed."""
        self._known.forget(catalog)

    def vended(self, table: str, properties: Mapping[str, object]) -> None:
        """Hide the credentials that a catalog gave for one table, among the properties of its FileIO."""
        known = {value.text for value in self._known.values}
        # PyIceberg puts objects among them too.
        texts = {key: value for key, value in properties.items() if isinstance(value, str)}
        self._of_tables.know(table, secret_values(texts) - known)

    def _value(self, catalog: str, key: str, reference: Reference) -> str:
        what = f"catalog {catalog!r}: {key!r}"
        if reference.problem is not None:
            raise ConfigError(f"{what} {reference.problem}; correct it")
        if reference.source is Source.ENV:
            value = self._environment.get(reference.name, "")
            if not value:
                state = "is empty in" if reference.name in self._environment else "is not set for"
                raise ConfigError(
                    f"{what} is {reference}, but the variable {reference.name} {state} this process; "
                    "set it for every process that opens the catalog"
                )
            if not value.isprintable():
                raise ConfigError(f"{what} is {reference}, and the variable holds a character that is no text; set it in UTF-8")
            return value
        return _text_of(self._path(what, reference), f"{what} is {reference}")

    def _path(self, what: str, reference: Reference) -> Path:
        if self._folder is None:
            raise ConfigError(f"{what} is {reference}, but no file may be read: set COMPACTION_SECRETS_FOLDER to the folder of secrets")
        folder = Path(os.path.realpath(self._folder.expanduser()))
        path = Path(os.path.realpath(folder / reference.name))
        if not path.is_relative_to(folder) or path == folder:
            raise ConfigError(
                f"{what} is {reference}, which does not lie below COMPACTION_SECRETS_FOLDER ({str(folder)!r}) when links are followed; "
                "put the file there, or correct the path"
            )
        return path


def _text_of(path: Path, what: str) -> str:
    """The text of a file, without the end of its last line."""
    try:
        # No link is followed any more, and a pipe without a writer is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{what}, which is no file; correct the path")
            with open(descriptor, "rb", closefd=False) as opened:
                content = opened.read(_MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise ConfigError(f"{what}, but there is no such file on this host; put it there, or correct the path") from None
    except OSError as error:
        raise ConfigError(f"{what}, which cannot be read: {error.strerror}; let this user read it, or correct the path") from None
    if len(content) > _MOST_BYTES:
        raise ConfigError(f"{what}, which is larger than 1 MiB; a secret is shorter: correct the path")
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ConfigError(f"{what}, which is no UTF-8 text; correct the path") from None
    if not text:
        raise ConfigError(f"{what}, which is empty; write the secret into it")
    return text
