"""Compares live entries before and after their manifests are rewritten: how many they are, and a digest over all that they say.

The digest does not depend on the order of the entries, nor on which manifests they stand in. The entries of old manifests are those that
our decoder has read. PyIceberg's compiled decoder, which shares no code with ours, finds the entries in what storage gives back of the new
manifests. So a fault of one of the two shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from compaction_pipeline.core.errors import TableRefused
from compaction_pipeline.formats.avro.frames import read_frame
from compaction_pipeline.formats.avro.values import DamagedAvro
from compaction_pipeline.iceberg.manifests.entries import data_file_type
from compaction_pipeline.iceberg.manifests.written_entries import FileCarrier
from compaction_pipeline.iceberg.second_look import looked_at_twice

_DIGEST_BYTES = 16
_NUMBERS = ("status", "snapshot_id", "sequence_number", "file_sequence_number")


class EntryDigest:
    """The count and the digest of live entries. Equal entries that are live twice count twice.

    Each field of a `data_file` counts with its bytes, in the form that our own manifests have. `EntryWriter` proves with another decoder
    that this form says the same as the bytes of the source.
    """

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._carriers: dict[tuple[int, int], tuple[Any, FileCarrier]] = {}
        self.count = 0
        self.total = 0

    def add(self, entries: Iterable[ManifestEntry]) -> None:
        """Add live entries that `read_entries` has read, as they must stand in a new manifest."""
        for entry in entries:
            file: Any = entry.data_file
            numbers = (ManifestEntryStatus.EXISTING.value, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number)
            self._add(file.spec_id, numbers, self._carrier(file).carried(file))

    def add_stored(self, io: FileIO, manifest: ManifestFile) -> None:
        """Add the entries of a new manifest, which storage gives back. Raises TableRefused if they cannot be found in it."""
        content = _content(io, manifest.manifest_path)
        try:
            for numbers, file in _stored(content):
                self._add(manifest.partition_spec_id, numbers, file)
        except Exception as error:
            # A decoder may raise anything for bytes that are not Avro.
            raise TableRefused(
                f"manifest {manifest.manifest_path} cannot be read back: {error}; nothing was committed; please report it"
            ) from error

    def _add(self, spec_id: int, numbers: tuple[int | None, ...], file: bytes) -> None:
        said = hashlib.blake2b(repr((spec_id, numbers)).encode(), digest_size=_DIGEST_BYTES)
        said.update(file)
        # A sum counts an entry that is there twice. An exclusive or would forget both.
        self.total = (self.total + int.from_bytes(said.digest(), "big")) % (1 << 8 * _DIGEST_BYTES)
        self.count += 1

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


@looked_at_twice
def _content(io: FileIO, path: str) -> bytes:
    with io.new_input(path).open() as stream:
        return stream.read()


def _stored(content: bytes) -> Iterator[tuple[tuple[int | None, ...], bytes]]:
    """Of each entry its status, its snapshot id and its two sequence numbers (0 in format v1), and the bytes of its `data_file`."""
    frame = read_frame(content)
    *head, file = AvroSchemaConversion().avro_to_iceberg(json.loads(frame.meta["avro.schema"])).fields
    assert isinstance(file.field_type, StructType)
    numbers, files = construct_reader(Schema(*head)), construct_reader(Schema(*file.field_type.fields))
    none = (0,) * (len(_NUMBERS) - len(head))
    for records, block in frame.contents(content):
        decoder = new_decoder(block)
        for _ in range(records):
            said = numbers.read(decoder)
            start = decoder.tell()
            files.skip(decoder)
            yield (*(said[place] for place in range(len(head))), *none), block[start : decoder.tell()]
        if decoder.tell() != len(block):
            raise DamagedAvro(f"{records} entries end at byte {decoder.tell()} of a block of {len(block)}")
