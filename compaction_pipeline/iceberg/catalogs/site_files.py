"""Puts the stored files that a catalog names in place of their names, for the process that opens the catalog.

Settings of Hadoop become properties (`hdfs.conf.…`). A keytab and a krb5.conf become paths, because libraries need them: each is written
with mode 600 into a folder of our own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from compaction_pipeline.core.catalogs.ports import SiteFileStore
from compaction_pipeline.core.catalogs.site_files import KIND_OF_KEY, SiteFileKind, id_in, of_hdfs, settings
from compaction_pipeline.core.errors import ConfigError, NotFoundError, StorageUnavailable
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.formats.file_io.hdfs_clients import CONF

_REMEMBERED = 64
_AS_PATH = frozenset({SiteFileKind.KRB5_CONF, SiteFileKind.KEYTAB})


class SiteFolder:
    """Looks up stored files for catalogs."""

    def __init__(self, content: Callable[[str], bytes], folder: Path) -> None:
        """`content` returns the content of a file by its id. `folder` is made when it is needed."""
        self._read = content
        self._folder = folder
        # The content behind an id never changes, and a catalog is looked up for each table.
        self._known: dict[str, bytes] = {}

    def filled(self, entry: CatalogEntry) -> CatalogEntry:
        """The catalog with the stored files in place of their names.

        A setting in hdfs-site wins over one in core-site, as in Hadoop, and a property `hdfs.conf.…` over both. Raises ConfigError for a
        file that is not stored, and StorageUnavailable when the folder cannot be written.
        """
        named = {key: found for key in KIND_OF_KEY if (found := id_in(entry.properties.get(key, ""))) is not None}
        if not named:
            return entry
        properties = {key: value for key, value in entry.properties.items() if key not in named}
        conf: dict[str, str] = {}
        for key, file_id in named.items():
            kind = KIND_OF_KEY[key]
            if kind in _AS_PATH:
                properties[key] = str(self._written(file_id))
            elif kind is SiteFileKind.HIVE_SITE:
                properties = {**_of_hive(settings(self._content(file_id))), **properties}
            else:
                conf.update(of_hdfs(settings(self._content(file_id))))
        return replace(entry, properties={**{f"{CONF}{name}": value for name, value in conf.items()}, **properties})

    def _content(self, file_id: str) -> bytes:
        if file_id not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            try:
                self._known[file_id] = self._read(file_id)
            except NotFoundError as error:
                # NotFoundError would say that a table is gone.
                raise ConfigError(f"{error}; store it again, or name another one with `catalog change`") from error
        return self._known[file_id]

    def _written(self, file_id: str) -> Path:
        path = self._folder / file_id
        content = self._content(file_id)
        with suppress(OSError):
            if stat.S_IMODE(path.stat().st_mode) == 0o600 and path.read_bytes() == content:
                return path
        part = self._folder / f"{file_id}.{uuid4().hex}.part"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            # Nobody else may open the file at any moment, so the mode is that of its making.
            descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(content)
            os.replace(part, path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise StorageUnavailable(
                f"the file {file_id} cannot be written to {str(self._folder)!r}: {error.strerror}; let this user write there"
            ) from error
        return path


def filled_by(store: Callable[[], SiteFileStore], folder: Path) -> Callable[[CatalogEntry], CatalogEntry]:
    """What puts stored files into a catalog. The store is opened when the first catalog names a file."""
    return SiteFolder(lambda file_id: store().content(file_id), folder).filled


def _of_hive(found: Mapping[str, str]) -> Mapping[str, str]:
    """The properties that a hive-site.xml gives a Hive catalog which does not set them itself."""
    given = {"uri": found.get("hive.metastore.uris", "").split(",")[0].strip()}
    if found.get("hive.metastore.sasl.enabled", "").lower() == "true":
        given["hive.kerberos-authentication"] = "true"
    return {key: value for key, value in given.items() if value}
