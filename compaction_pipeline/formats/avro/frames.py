"""Reads and writes the frame of an Avro file (Avro spec: "Object Container Files"): its header and its blocks, whole or not at all.

PyIceberg does not notice that a file was cut: it reads the rest as a shorter file. Here a cut file is DamagedAvro.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.avro.codecs import CODEC_MAPPING_ICEBERG_TO_AVRO, KNOWN_CODECS, AvroCompressionCodec

from compaction_pipeline.formats.avro.values import DamagedAvro, UnknownAvro, long_bytes, read_long

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# PyIceberg knows no name for files that are not compressed. Iceberg's `write.avro.compression-codec` has one.
_AVRO_NAMES = {**CODEC_MAPPING_ICEBERG_TO_AVRO, "uncompressed": "null"}


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """One block: its number of records, and where their (compressed) bytes lie in the file."""

    records: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AvroFrame:
    """The header of a file, and where its blocks lie."""

    meta: Mapping[str, bytes]
    blocks: tuple[AvroBlock, ...]

    def contents(self, content: bytes) -> Iterator[tuple[int, bytes]]:
        """The number of records and the decompressed bytes of each block. Raises UnknownAvro for a codec that is not known."""
        name = self.meta.get("avro.codec", b"null").decode()
        if name not in KNOWN_CODECS:
            raise UnknownAvro(f"its codec is {name!r} but must be one of {', '.join(KNOWN_CODECS)}")
        codec = KNOWN_CODECS[name]
        for block in self.blocks:
            packed = content[block.start : block.end]
            yield block.records, packed if codec is None else codec.decompress(packed)


def read_frame(content: bytes) -> AvroFrame:
    """Read the frame of a file. Raises DamagedAvro unless header and blocks end exactly where the file ends."""
    if content[:4] != _MAGIC:
        raise DamagedAvro(f"it is not an Avro file ({len(content)} bytes)")
    meta: dict[str, bytes] = {}
    position = 4
    while True:
        entries, position = _long(content, position)
        if entries == 0:
            break
        if entries < 0:
            _, position = _long(content, position)
        for _ in range(abs(entries)):
            key, position = _bytes(content, position)
            value, position = _bytes(content, position)
            meta[key.decode(errors="replace")] = value
    sync = content[position : position + _SYNC_BYTES]
    position = _skipped(content, position, _SYNC_BYTES)
    blocks: list[AvroBlock] = []
    while position < len(content):
        records, position = _long(content, position)
        length, start = _long(content, position)
        position = _skipped(content, start, length)
        blocks.append(AvroBlock(records, start, position))
        if content[position : position + _SYNC_BYTES] != sync:
            raise DamagedAvro(f"a block ends wrongly at byte {position} of {len(content)}: it was cut or overwritten")
        position += _SYNC_BYTES
    return AvroFrame(meta, tuple(blocks))


def _bytes(content: bytes, position: int) -> tuple[bytes, int]:
    length, start = _long(content, position)
    end = _skipped(content, start, length)
    return content[start:end], end


def _skipped(content: bytes, position: int, length: int) -> int:
    if length < 0 or position + length > len(content):
        raise DamagedAvro(f"it ends after {len(content)} bytes, inside of a block: it was cut")
    return position + length


def _long(content: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position behind it."""
    try:
        return read_long(content, position)
    except IndexError:
        raise DamagedAvro(f"it ends after {len(content)} bytes, inside of a block: it was cut") from None


def write_frame(meta: Mapping[str, str], blocks: Iterable[tuple[int, bytes]]) -> bytes:
    """An Avro file of these blocks (number of records, and their bytes). `avro.codec` in `meta` may be Iceberg's or Avro's name.

    Raises UnknownAvro for a codec that is not known.
    """
    return frame_of(meta, [(records, packed(block, meta["avro.codec"])) for records, block in blocks])


def packed(block: bytes, codec: str) -> bytes:
    """The bytes of a block as they stand in a file of this codec, which is Iceberg's or Avro's name. Raises as `write_frame`."""
    known = KNOWN_CODECS[codec_name(codec)]
    return block if known is None else bytes(known.compress(block)[0])


def frame_of(meta: Mapping[str, str], blocks: Iterable[tuple[int, bytes]]) -> bytes:
    """An Avro file of blocks that are `packed` already."""
    sync = os.urandom(_SYNC_BYTES)
    header = {**meta, "avro.codec": codec_name(meta["avro.codec"])}
    parts = [_MAGIC, long_bytes(len(header))]
    for key, value in header.items():
        for text in (key, value):
            encoded = text.encode()
            parts += [long_bytes(len(encoded)), encoded]
    parts += [b"\x00", sync]
    for records, block in blocks:
        parts += [long_bytes(records), long_bytes(len(block)), block, sync]
    return b"".join(parts)


def codec_name(said: str) -> AvroCompressionCodec:
    """Avro's name of a codec that is said by Iceberg's name or by Avro's. Raises UnknownAvro for a codec that is not known."""
    # Iceberg takes its names in capitals too.
    name = _AVRO_NAMES.get(said.lower(), said.lower())
    if name not in KNOWN_CODECS:
        raise UnknownAvro(f"its codec is {said!r} but must be one of {', '.join(_AVRO_NAMES)}")
    return name
