"""The frame of an Avro file: written, read, and refused when it was cut anywhere. fastavro is the judge."""

from __future__ import annotations

import io
import json

import fastavro
import pytest

from compaction_pipeline.formats.avro.frames import read_frame, write_frame
from compaction_pipeline.formats.avro.values import DamagedAvro, UnknownAvro, long_bytes

_META = {"avro.schema": json.dumps("long"), "format-version": "2"}


@pytest.mark.parametrize("codec", ["null", "uncompressed", "gzip", "GZIP", "deflate"])
def test_a_file_that_is_written_is_read_by_fastavro_and_by_us(codec: str) -> None:
    content = write_frame({**_META, "avro.codec": codec}, [(2, long_bytes(1) + long_bytes(-7)), (1, long_bytes(1 << 40))])
    assert list(fastavro.reader(io.BytesIO(content))) == [1, -7, 1 << 40]
    frame = read_frame(content)
    assert frame.meta["format-version"] == b"2"
    assert list(frame.contents(content)) == [(2, long_bytes(1) + long_bytes(-7)), (1, long_bytes(1 << 40))]


def test_a_file_that_was_cut_anywhere_is_damaged_or_has_fewer_whole_blocks() -> None:
    blocks = [(1, long_bytes(number)) for number in range(3)]
    content = write_frame({**_META, "avro.codec": "null"}, blocks)
    header = len(write_frame({**_META, "avro.codec": "null"}, []))
    ends = [header + number * (len(content) - header) // 3 for number in range(3)]
    for end in set(range(len(content))) - set(ends):
        with pytest.raises(DamagedAvro):
            read_frame(content[:end])


def test_a_codec_that_is_not_known_is_named() -> None:
    with pytest.raises(UnknownAvro, match="its codec is 'lzma'"):
        write_frame({**_META, "avro.codec": "lzma"}, [])
