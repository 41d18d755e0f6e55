"""Row ids of tables of format v3: which data files inherit one, and which ids a new manifest list gives away.

Sources: the specification's "First Row ID Inheritance", "First Row ID Assignment" and "Snapshot Row IDs".
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile

from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry

FIRST_ROW_ID_SLOT = 15
"""The slot of a `ManifestFile` that `lists.py` fills with field id 520. Those of PyIceberg end before it."""


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """The first row id that a manifest list gives a manifest."""
    value: int | None = manifest[FIRST_ROW_ID_SLOT] if len(manifest) > FIRST_ROW_ID_SLOT else None
    return value


class RowIds:
    """The first row ids of the entries of one manifest, in their order."""

    def __init__(self, first: int | None) -> None:
        """`first` is what the manifest list says of the manifest, whatever the format version in the manifest's own header is."""
        self._next = first

    def of(self, entry: DecodedEntry) -> int | None:
        """The id of the next entry. A live entry without one takes the next ids; where the list gives none, a stored one does not count."""
        if self._next is None or entry.first_row_id is not None:
            return None if self._next is None else entry.first_row_id
        if entry.status == ManifestEntryStatus.DELETED or entry.content:
            return None
        first, self._next = self._next, self._next + entry.record_count
        return first


def with_row_ids(manifests: Sequence[ManifestFile], next_row_id: int) -> tuple[list[ManifestFile], int]:
    """The manifests of a new snapshot, each data manifest with its first row id, and the next id behind them.

    A manifest that has an id keeps it. Any other takes ids for all its live rows, also when its entries have ids of their own.
    """
    given = []
    for one in manifests:
        first = first_row_id_of(one)
        if one.content == ManifestContent.DATA and first is None:
            first, next_row_id = next_row_id, next_row_id + (one.added_rows_count or 0) + (one.existing_rows_count or 0)
        given.append(ManifestFile(*[one[slot] for slot in range(FIRST_ROW_ID_SLOT)], first))
    return given, next_row_id
