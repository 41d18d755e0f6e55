"""Reads metadata files of tables, past their catalog."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata

from compaction_pipeline.core.errors import StorageUnavailable, TableRefused

_GZIP = b"\x1f\x8b"


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """The metadata in this `metadata.json`, which may be compressed. Raises what the FileIO raises, and ValueError for a damaged file."""
    return FromInputFile.table_metadata(io.new_input(location))


def read_raw_metadata(io: FileIO, location: str) -> Mapping[str, Any]:
    """The JSON in this `metadata.json`, which may be compressed, as it stands there: nothing of it is parsed, so any format can be read.

    Raises what the FileIO raises, StorageUnavailable for a damaged file, and TableRefused for a file that is no metadata.
    """
    with io.new_input(location).open() as stream:
        content = stream.read()
    try:
        said = json.loads(gzip.decompress(content) if content[:2] == _GZIP else content)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise StorageUnavailable(f"metadata file {location} is corrupt: {error}; restore it or roll the table back") from None
    if not isinstance(said, dict):
        raise TableRefused(f"metadata file {location} is no metadata of an Iceberg table: its JSON is no object")
    return said
