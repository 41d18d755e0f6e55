"""Reads metadata files of tables, past their catalog."""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata


def read_metadata(io: FileIO, location: str) -> TableMetadata:
    """The metadata in this `metadata.json`, which may be compressed. Raises what the FileIO raises, and ValueError for a damaged file."""
    return FromInputFile.table_metadata(io.new_input(location))
