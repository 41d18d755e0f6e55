"""Which files a table needs, and which files there are. Manifests are read by fastavro, which shares no code with the product's decoder."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fastavro
from pyiceberg.table import Table


def reached(table: Table) -> set[str]:
    """The paths of all files that a snapshot of the newest metadata needs, without scheme. `table` is refreshed."""
    table.refresh()
    metadata, found, manifests = table.metadata, set[str](), set[str]()
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        manifests |= {manifest["manifest_path"] for manifest in avro_records(table, snapshot.manifest_list)}
    for path in manifests:
        found |= {entry["data_file"]["file_path"] for entry in avro_records(table, path) if entry["status"] != 2}
    found |= {one.statistics_path for one in (*metadata.statistics, *metadata.partition_statistics)}
    return {urlsplit(path).path for path in found | manifests}


def files_on_disk(table: Table) -> set[str]:
    """The files in the folder of a table on this host, without the metadata.json files."""
    folder = Path(urlsplit(table.location()).path)
    return {str(path) for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".metadata.json")}


def avro_records(table: Table, path: str) -> Sequence[Any]:
    """The records of an Avro file of a table. Those of a file of this host are shared by all who ask, so nobody changes them."""
    place = urlsplit(path)
    if place.scheme in ("", "file"):
        # By this stamp the cache notices a file that was overwritten.
        stamp = os.stat(place.path)
        return _records_here(place.path, stamp.st_mtime_ns, stamp.st_size)
    with table.io.new_input(path).open() as stream:
        return list(fastavro.reader(io.BytesIO(stream.read())))


@lru_cache(maxsize=4096)
def _records_here(path: str, _modified: int, _size: int) -> Sequence[Any]:
    with open(path, "rb") as source:
        return list(fastavro.reader(source))
