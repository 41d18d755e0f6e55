"""Compares live entries before and after their manifests are rewritten: how many they are, and a digest over all that they say.

The digest does not depend on the order of the entries, nor on which manifests they stand in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from pyiceberg.manifest import ManifestEntry
from pyiceberg.table.metadata import TableMetadata

from compaction_pipeline.iceberg.manifests.entries import data_file_type
from compaction_pipeline.iceberg.manifests.written_entries import FileCarrier

_DIGEST_BYTES = 16
_MOST_BEGUN = 4096


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


class EntryDigest:
    """The count and the digest of live entries. Equal entries that are live twice count twice.

    Each field of a `data_file` counts with its bytes, in the form that our own manifests have. `EntryWriter` proves with another decoder
    that this form says the same as the bytes of the source.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._carriers: dict[tuple[int, int], tuple[Any, FileCarrier]] = {}
        # Many entries have the same numbers.
        self._begun: dict[tuple[int | None, ...], bytes] = {}
        self.count = 0
        self.total = 0

    def add(self, entries: Iterable[ManifestEntry]) -> None:
        """Add live entries that `read_entries` has read."""
        total, known = self.total, self._begun
        carrier, kind, spec_id = None, None, None
        for entry in entries:
            file: Any = entry.data_file
            if carrier is None or file.type is not kind or file.spec_id != spec_id:
                kind, spec_id = file.type, file.spec_id
                carrier = self._carrier(file)
            numbers = (spec_id, entry.status, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
            begun = known.get(numbers)
            if begun is None:
                if len(known) >= _MOST_BEGUN:
                    known.clear()
                begun = known[numbers] = _digest(repr((spec_id, int(entry.status), *numbers[2:])).encode())
            # A sum counts an entry that is there twice. An exclusive or would forget both.
            total += int.from_bytes(_digest(begun + carrier.carried(file)), "big")
            self.count += 1
        self.total = total % (1 << 8 * _DIGEST_BYTES)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EntryDigest) and (self.count, self.total) == (other.count, other.total)

    __hash__ = None  # type: ignore[assignment]

    def _carrier(self, file: Any) -> FileCarrier:
        # The type is kept beside its id, because another object may get the id of one that is gone.
        known = self._carriers.get((id(file.type), file.spec_id))
        if known is None:
            carrier = FileCarrier(file.type, data_file_type(self._metadata, file.spec_id))
            known = self._carriers[id(file.type), file.spec_id] = (file.type, carrier)
        return known[1]
