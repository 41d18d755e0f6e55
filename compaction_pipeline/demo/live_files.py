"""The live files of a demo table, as PyIceberg reads them. No code of ours can change what the demo shows and compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class LiveEntry:
    """One live file. `node` is its partition: (spec id, values)."""

    path: str
    content: DataFileContent
    sequence_number: int
    node: tuple[int, str]
    size_bytes: int
    equality_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Census:
    """A table in numbers. A reader of one node opens `opened_per_node` files on average, and `opened_at_worst` at most."""

    data_files: int
    small_files: int
    delete_files: int
    bytes: int
    nodes: int
    opened_per_node: float
    opened_at_worst: int
    stored_bytes: int = 0
    """The size of all files in the folders of the table: live ones, those of older snapshots, and metadata."""

    @property
    def files(self) -> int:
        return self.data_files + self.delete_files


class LiveFiles:
    """Reads the live files of one table again and again. A manifest never changes, so it reads each one once."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._read: dict[str, tuple[LiveEntry, ...]] = {}

    def entries(self) -> Iterator[LiveEntry]:
        """Every live file of the newest snapshot."""
        self._table.refresh()
        snapshot = self._table.current_snapshot()
        manifests = snapshot.manifests(self._table.io) if snapshot else []
        self._read = {manifest.manifest_path: self._entries(manifest) for manifest in manifests}
        for entries in self._read.values():
            yield from entries

    def census(self, small_bytes: int) -> Census:
        """Count the live files. A file of at most `small_bytes` is small."""
        entries = list(self.entries())
        per_node = Counter(entry.node for entry in entries)
        data = sum(entry.content is DataFileContent.DATA for entry in entries)
        return Census(
            data_files=data,
            small_files=sum(entry.size_bytes <= small_bytes for entry in entries),
            delete_files=len(entries) - data,
            bytes=sum(entry.size_bytes for entry in entries),
            nodes=len(per_node),
            opened_per_node=len(entries) / len(per_node) if per_node else 0.0,
            opened_at_worst=max(per_node.values(), default=0),
            stored_bytes=self.stored_bytes(),
        )

    def stored_bytes(self) -> int:
        """The size of all files in the folder of the table on this host."""
        folder = Path(urlsplit(self._table.location()).path)
        return sum(size for size in map(_size, folder.rglob("*")) if size is not None)

    def _entries(self, manifest: ManifestFile) -> tuple[LiveEntry, ...]:
        known = self._read.get(manifest.manifest_path)
        if known is not None:
            return known
        entries = []
        for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
            file = entry.data_file
            assert entry.sequence_number is not None
            entries.append(
                LiveEntry(
                    path=file.file_path,
                    content=file.content,
                    sequence_number=entry.sequence_number,
                    node=(manifest.partition_spec_id, repr(file.partition)),
                    size_bytes=file.file_size_in_bytes,
                    equality_ids=tuple(file.equality_ids or ()),
                )
            )
        return tuple(entries)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except FileNotFoundError:
        # It was deleted a moment ago.
        return None
