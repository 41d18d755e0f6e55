"""Stores the files of Hadoop and Kerberos that catalogs name, whichever door they come through. None is given out again."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence

from compaction_pipeline.core.catalogs.ports import SiteFileStore
from compaction_pipeline.core.catalogs.site_files import MOST_BYTES, SiteFile, SiteFileKind, site_file_id, site_file_problem
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.leases.ports import Clock


class SiteFiles:
    """The verbs add, files and remove."""

    def __init__(self, store: SiteFileStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def add(self, kind: str, content: bytes) -> SiteFile:
        """Store a file, and return its id. Raises ConfigError for an unknown kind, and for a content that is not of its kind."""
        known = {one.value: one for one in SiteFileKind}
        if kind not in known:
            raise ConfigError(f"'kind' is {kind[:100]!r} but must be one of {', '.join(known)}")
        problem = site_file_problem(known[kind], content)
        if problem is not None:
            raise ConfigError(f"the file is not stored as {kind}: {problem}")
        return self._store.add(SiteFile(site_file_id(known[kind], content), known[kind], len(content), self._clock()), content)

    def add_encoded(self, kind: str, content: str) -> SiteFile:
        """Store a file that comes in base64. Raises as `add`."""
        try:
            return self.add(kind, base64.b64decode(content, validate=True))
        except (binascii.Error, ValueError):
            raise ConfigError(f"'content' must be the bytes of the file in base64, at most {MOST_BYTES} bytes") from None

    def files(self) -> Sequence[SiteFile]:
        """Return what is told of all stored files, by id."""
        return self._store.files()

    def kinds(self) -> Mapping[str, SiteFileKind]:
        """Return the kind of each stored file, by id."""
        return {file.id: file.kind for file in self._store.files()}

    def remove(self, file_id: str) -> None:
        """Forget a file. Raises NotFoundError, and ConfigError while catalogs name it."""
        self._store.remove(file_id)
