"""Reads what metadata files say of themselves: whose they are, and how far they have come."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone

from pyiceberg.io import FileIO

from compaction_pipeline.core.errors import CompactionError, TableRefused
from compaction_pipeline.core.upkeep.orphan_rules import MetadataState
from compaction_pipeline.iceberg.catalogs.metadata_files import read_raw_metadata
from compaction_pipeline.iceberg.failures import translated

_logger = logging.getLogger(__name__)

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def metadata_state(io: FileIO, location: str) -> MetadataState:
    """What the metadata file at this location says. PyIceberg would invent a uuid for metadata that names none.

    Raises StorageUnavailable when the file cannot be read, and TableRefused when it is no metadata of a table.
    """
    with translated(f"metadata file {location}", is_file=True):
        said = read_raw_metadata(io, location)
    try:
        uuid = said.get("table-uuid")
        number, updated_ms = int(said.get("last-sequence-number", 0)), int(said["last-updated-ms"])
        updated_at = _EPOCH + timedelta(milliseconds=updated_ms)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise TableRefused(f"metadata file {location} is no metadata of an Iceberg table: {error!r}") from error
    return MetadataState(None if uuid is None else str(uuid), number, updated_at)


class ListedMetadata(Mapping[str, MetadataState]):
    """What listed metadata files say, each read when somebody asks for it. One that cannot be read is not there.

    The stores of a keyed table may be opened with different credentials, so each of the FileIOs may open a file.
    """

    def __init__(self, ios: Sequence[FileIO]) -> None:
        self._ios = ios
        self._read: dict[str, MetadataState] = {}

    def __getitem__(self, path: str) -> MetadataState:
        for io in self._ios if path not in self._read else ():
            try:
                self._read[path] = metadata_state(io, path)
                break
            except CompactionError as error:
                _logger.warning("metadata file %s, which no metadata names, cannot be read: %s", path, error)
        return self._read[path]

    def __iter__(self) -> Iterator[str]:
        """Those that were asked for."""
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)
