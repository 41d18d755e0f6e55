"""Reads manifest lists, whole or not at all.

PyIceberg takes an Avro file that was cut for one that ends there. A manifest has its counts in the list; the list itself has
nothing above it that says how much it should hold: a manifest that a cut list no longer names would be lost, with every row in
it, at the next rewrite. So the frame of the file is walked first.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

from pyiceberg.io import FileIO, InputFile
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.table.snapshots import Snapshot

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.iceberg.avro_frames import read_frame


def read_manifests(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests of a snapshot. StorageUnavailable when its manifest list is corrupt or was cut."""
    path = snapshot.manifest_list
    with io.new_input(path).open() as stream:
        content = stream.read()
    try:
        read_frame(content)
        manifests = list(read_manifest_list(_InMemory(path, content)))
        if not manifests and _total_files(snapshot):
            # Cut behind its header it is a whole file of no manifests.
            raise ValueError(f"it names no manifest, but its snapshot holds {_total_files(snapshot)} files")
        return manifests
    except Exception as error:
        # Whatever a decoder does with bytes that are not Avro: SystemError and MemoryError included.
        raise StorageUnavailable(f"manifest list {path} is corrupt: {error}; restore it or roll the table back") from error


def _total_files(snapshot: Snapshot) -> int:
    said = snapshot.summary.additional_properties if snapshot.summary else {}
    totals = [said.get(key, "") for key in ("total-data-files", "total-delete-files")]
    return sum(int(total) for total in totals if total.isdigit())


class _InMemory(InputFile):
    """Bytes that were read already."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> Any:
        return BytesIO(self._content)
