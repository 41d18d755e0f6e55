"""Reads and writes Puffin files with small, uncompressed blobs, as Amoro's statistics files are (the Puffin spec of Apache Iceberg).

PyIceberg 0.12 writes none, and its reader gives a shorter payload for a blob that ends behind the file. Here such a file is DamagedPuffin.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MAGIC = b"PFA1"
_TAIL = struct.Struct("<iI4s")
"""The end of the file: the length of the footer's JSON, the flags, and the magic bytes."""
_COMPRESSED_FOOTER = 1


class DamagedPuffin(ValueError):
    """Bytes are not a Puffin file, or one that this version does not read."""


@dataclass(frozen=True)
class PuffinFile:
    """A file to write: its bytes, the bytes of its footer, and what the table's metadata says about its blobs (`blob-metadata`)."""

    content: bytes
    footer_size_bytes: int
    blob_metadata: tuple[Mapping[str, Any], ...]


def puffin_of(blobs: Sequence[tuple[str, bytes]], snapshot_id: int, sequence_number: int) -> PuffinFile:
    """A file with these blobs (type and payload), which belong to the snapshot."""
    content = bytearray(_MAGIC)
    places = []
    for kind, payload in blobs:
        about = {"type": kind, "fields": [], "snapshot-id": snapshot_id, "sequence-number": sequence_number}
        places.append({**about, "offset": len(content), "length": len(payload)})
        content += payload
    footer = json.dumps({"blobs": places}, separators=(",", ":")).encode()
    end = _MAGIC + footer + _TAIL.pack(len(footer), 0, _MAGIC)
    known = ("type", "snapshot-id", "sequence-number", "fields")
    return PuffinFile(bytes(content + end), len(end), tuple({key: place[key] for key in known} for place in places))


def blobs_of(content: bytes, kind: str) -> list[bytes]:
    """The payloads of the blobs of this type, in a file of these bytes. Raises DamagedPuffin for a file that cannot be read."""
    try:
        length, flags, magic = _TAIL.unpack(content[-_TAIL.size :])
        start = len(content) - _TAIL.size - length
        if magic != _MAGIC or content[:4] != _MAGIC or length < 0 or content[start - 4 : start] != _MAGIC:
            raise ValueError("it does not begin and end like a Puffin file")
        if flags & _COMPRESSED_FOOTER:
            raise ValueError("its footer is compressed, which this version does not read")
        blobs = [blob for blob in json.loads(content[start : start + length])["blobs"] if blob["type"] == kind]
        return [_payload(content[: start - 4], blob) for blob in blobs]
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise DamagedPuffin(str(error)) from error


def _payload(content: bytes, blob: Mapping[str, Any]) -> bytes:
    codec = blob.get("compression-codec")
    if codec is not None:
        raise ValueError(f"a blob is compressed with {codec!r}, which this version does not read")
    start, length = int(blob["offset"]), int(blob["length"])
    if start < len(_MAGIC) or length < 0 or start + length > len(content):
        raise ValueError(f"a blob of {length} bytes at {start} does not lie inside the file")
    return content[start : start + length]
