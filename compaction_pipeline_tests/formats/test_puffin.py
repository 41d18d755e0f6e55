"""Puffin files: written, read, and refused when they are damaged."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compaction_pipeline.formats.puffin import DamagedPuffin, blobs_of, puffin_of

# The file that Amoro wrote for its example table.
AMORO = (
    b'PFA1{"":10}{"":1795252398524}PFA1{"blobs":[{"type":"optimized-sequence","fields":[],"snapshot-id":1243367034002048086,'
    b'"sequence-number":3,"offset":4,"length":7},{"type":"base-optimized-time","fields":[],"snapshot-id":1243367034002048086,'
    b'"sequence-number":3,"offset":11,"length":18}]}\xfa\x00\x00\x00\x00\x00\x00\x00PFA1'
)


def test_a_file_of_amoro_is_read_and_written_again_byte_for_byte() -> None:
    blobs = [(kind, blobs_of(AMORO, kind)[0]) for kind in ("optimized-sequence", "base-optimized-time")]
    assert blobs == [("optimized-sequence", b'{"":10}'), ("base-optimized-time", b'{"":1795252398524}')]
    written = puffin_of(blobs, 1243367034002048086, 3)
    assert written.content == AMORO
    assert written.footer_size_bytes == 266
    assert [blob["type"] for blob in written.blob_metadata] == ["optimized-sequence", "base-optimized-time"]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "ß"]), st.binary(max_size=20)), max_size=5), st.integers(0, 2**63 - 1))
def test_what_is_written_is_read_again(blobs: list[tuple[str, bytes]], snapshot: int) -> None:
    content = puffin_of(blobs, snapshot, 1).content
    for kind in ("a", "b", "ß"):
        assert blobs_of(content, kind) == [payload for name, payload in blobs if name == kind]


def with_footer(footer: bytes, flags: int = 0) -> bytes:
    return b"PFA1" + b"{}" + b"PFA1" + footer + struct.pack("<iI", len(footer), flags) + b"PFA1"


def of_blob(**changes: object) -> bytes:
    return with_footer(json.dumps({"blobs": [{"type": "a", "offset": 4, "length": 2, **changes}]}).encode())


@pytest.mark.parametrize(
    "content",
    [b"", b"PFA1", AMORO[:-1], AMORO[1:], with_footer(b"{}"), with_footer(b"[]"), with_footer(b"{"), with_footer(b'{"blobs":[]}', flags=1),
     of_blob(length=3), of_blob(offset=3), of_blob(offset=-2), of_blob(length=-1), of_blob(**{"compression-codec": "zstd"})],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused(content: bytes) -> None:
    with pytest.raises(DamagedPuffin):
        blobs_of(content, "a")


def test_a_blob_without_compression_is_read() -> None:
    assert blobs_of(of_blob(), "a") == [b"{}"]
