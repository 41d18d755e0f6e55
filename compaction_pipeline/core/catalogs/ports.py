"""What the state database keeps of files that catalogs name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from compaction_pipeline.core.catalogs.site_files import SiteFile


class SiteFileStore(Protocol):
    """The stored files, by id. Their contents are stored encrypted."""

    def add(self, file: SiteFile, content: bytes) -> SiteFile:
        """Store a file, and return it; when its content is stored already, return what is stored. Raises ConfigError without a key."""

    def files(self) -> Sequence[SiteFile]:
        """Return all files, by id."""

    def content(self, file_id: str) -> bytes:
        """Return the content of a file, for the process that opens a catalog. Raises NotFoundError when it is unknown."""

    def remove(self, file_id: str) -> None:
        """Forget a file. Raises NotFoundError when it is unknown, and ConfigError, which names the catalogs, while catalogs name it."""
