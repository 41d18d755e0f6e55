"""The decoder reads every entry as fastavro does, whoever wrote the manifest."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import BinaryType, DateType, DecimalType, DoubleType, NestedField, StringType, TimestamptzType

from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.formats.avro.entry_decoder import DecodedEntry, ManifestDecoder
from compaction_pipeline.formats.avro.values import DamagedAvro, UnknownAvro
from compaction_pipeline.iceberg.manifests.entries import ManifestWriter, data_file_of, entry_of
from compaction_pipeline.iceberg.manifests.partition_bytes import PartitionDecoder
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline_tests.iceberg.lake import Lake

_SCHEMA = Schema(
    NestedField(1, "name", StringType(), required=False),
    NestedField(2, "at", TimestamptzType(), required=False),
    NestedField(3, "amount", DecimalType(12, 2), required=False),
    NestedField(4, "ratio", DoubleType(), required=False),
    NestedField(5, "key", BinaryType(), required=False),
    NestedField(6, "born", DateType(), required=False),
)
_SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "name"),
    PartitionField(2, 1001, DayTransform(), "at_day"),
    PartitionField(3, 1002, IdentityTransform(), "amount"),
    PartitionField(4, 1003, IdentityTransform(), "ratio"),
    PartitionField(5, 1004, IdentityTransform(), "key"),
    PartitionField(1, 1005, BucketTransform(16), "name_bucket"),
)
_NULLS = tuple(PartitionValue(field.name, "string", None) for field in _SPEC.fields)
_VALUES = (
    PartitionValue("name", "string", "ä/b"),
    PartitionValue("at_day", "date", date(2024, 2, 29).isoformat()),
    PartitionValue("amount", "decimal(12, 2)", str(Decimal("-1.50"))),
    PartitionValue("ratio", "double", -0.0),
    PartitionValue("key", "binary", "00ff"),
    PartitionValue("name_bucket", "int", 7),
)


def _files(content: FileContent) -> list[OutputFile]:
    bounds = {2147483546: b"s3://a/x".hex(), 1: b"\x00\x01".hex()}
    figures: dict[str, Any] = {name: {1: 10, 2: 300_000} for name in ("column_sizes", "value_counts", "null_value_counts")}
    bare = OutputFile("s3://a/bare.parquet", content, 0, _NULLS, 1, 0)
    full = OutputFile(
        "s3://a/ü.parquet", content, 0, _VALUES, 1 << 40, 1 << 33, **figures,
        nan_value_counts={4: 0}, lower_bounds=bounds, upper_bounds=bounds, split_offsets=(4, 1 << 35),
        sort_order_id=0, referenced_data_file="s3://a/x" if content is FileContent.POSITION_DELETES else None,
    )  # fmt: skip
    return [bare, full]


def _manifest(lake: Lake, content: FileContent, version: int) -> tuple[Any, bytes, Any]:
    table = lake.table(f"t{version}{content.value.lower()}", _SCHEMA, _SPEC, version).table
    struct = partition_struct(table.metadata, 0)
    path = f"{table.location()}/metadata/m.avro"
    ids = (1, 3) if content is FileContent.EQUALITY_DELETES else ()
    files = [data_file_of(file, struct, ids) for file in _files(content)]
    entries = [
        entry_of(ManifestEntryStatus.ADDED, None if version == 2 else 7, None, None, files[0]),
        entry_of(ManifestEntryStatus.EXISTING, 5, 3, 2, files[1]),
        entry_of(ManifestEntryStatus.DELETED, 6, 3, 2, files[1]),
    ]
    kind = ManifestContent.DATA if content is FileContent.DATA else ManifestContent.DELETES
    manifest = ManifestWriter(table.io, table.metadata, 7, 4 if version == 2 else 0, lambda: path).write(kind, 0, entries)
    return table, Path(path.removeprefix("file://")).read_bytes(), manifest


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("content", list(FileContent))
def test_the_decoder_agrees_with_fastavro(lake: Lake, content: FileContent, version: int) -> None:
    if version == 1 and content is not FileContent.DATA:
        return  # v1 has no delete files.
    table, bytes_, _ = _manifest(lake, content, version)
    judged: list[Any] = list(fastavro.reader(io.BytesIO(bytes_)))
    for with_bounds in (False, True):
        decoder = ManifestDecoder(bytes_)
        partitions = PartitionDecoder(decoder.partition_type, partition_struct(table.metadata, 0))
        decoded = list(decoder.entries(with_bounds=with_bounds))
        assert len(decoded) == len(judged) == 3
        for fast, slow in zip(decoded, judged, strict=True):
            for name in ("status", "snapshot_id", "sequence_number", "file_sequence_number"):
                assert getattr(fast, name) == slow.get(name)
            _assert_equal(fast, slow["data_file"], with_bounds)
            values = [days(value) if isinstance(value, date) else value for value in slow["data_file"]["partition"].values()]
            assert repr(list(partitions.values(fast.partition))) == repr(values)


def days(value: date) -> int:
    return (value - date(1970, 1, 1)).days


def _assert_equal(fast: DecodedEntry, slow: dict[str, Any], with_bounds: bool) -> None:
    assert (fast.content or 0) == slow.get("content", 0)  # absent in v1: DATA
    assert (
        fast.path,
        fast.format,
        fast.record_count,
        fast.file_size_bytes,
        fast.key_metadata,
        fast.equality_ids,
        fast.sort_order_id,
    ) == tuple(
        slow.get(name)
        for name in ("file_path", "file_format", "record_count", "file_size_in_bytes", "key_metadata", "equality_ids", "sort_order_id")
    )
    assert fast.referenced_data_file == slow.get("referenced_data_file")
    for name in ("lower_bounds", "upper_bounds", "value_counts", "null_value_counts"):
        pairs = slow[name]
        wanted = None if pairs is None else {pair["key"]: pair["value"] for pair in pairs}
        assert getattr(fast, name) == (wanted if with_bounds else None)


def test_runs_with_their_size_are_skipped_by_that_size(lake: Lake) -> None:
    # In Avro, a negative count is followed by the size of the run in bytes. Java's blocking encoder writes such runs.
    _, bytes_, _ = _manifest(lake, FileContent.DATA, 2)
    frame = fastavro.reader(io.BytesIO(bytes_))
    schema = json.loads(frame.metadata["avro.schema"])
    fields = next(field for field in schema["fields"] if field["name"] == "data_file")["type"]["fields"]
    kept = {"content", "file_path", "file_format", "record_count", "file_size_in_bytes", "value_counts", "sort_order_id"}
    fields[:] = [field for field in fields if field["name"] in kept]
    record = b"\x02\x02\x0e\x00\x00" + b"\x00" + b"\x02p" + b"\x0ePARQUET" + b"\x06\x08"
    record += b"\x02" + b"\x03\x08\x02\x04\x04\x06" + b"\x01\x04\x08\x0a" + b"\x00"  # two runs of 2 and 1 items, with their sizes
    record += b"\x02\x12"
    out = io.BytesIO()
    fastavro.writer(out, schema, [], codec="null", metadata={})
    header = out.getvalue()
    content = header + b"\x02" + bytes([len(record) << 1]) + record + header[-16:]
    (entry,) = ManifestDecoder(content).entries()
    assert (entry.path, entry.record_count, entry.file_size_bytes, entry.sort_order_id) == ("p", 3, 4, 9)


def test_a_manifest_cut_anywhere_is_an_error(lake: Lake) -> None:
    _, bytes_, _ = _manifest(lake, FileContent.DATA, 2)
    assert len(list(ManifestDecoder(bytes_).entries(with_bounds=True))) == 3
    for end in (0, 3, 40, len(bytes_) // 2, len(bytes_) - 17, len(bytes_) - 1):
        with pytest.raises(Exception):  # noqa: B017 whatever it is becomes one clear sentence in `read_live_files`
            list(ManifestDecoder(bytes_[:end]).entries())


def test_bytes_behind_the_entries_of_a_block_are_an_error(lake: Lake) -> None:
    _, bytes_, _ = _manifest(lake, FileContent.DATA, 2)
    frame = fastavro.reader(io.BytesIO(bytes_))
    out = io.BytesIO()
    fastavro.writer(out, frame.writer_schema, [], codec="null", metadata={})
    header = out.getvalue()
    # This block claims to hold no entry, but it holds five bytes.
    with pytest.raises(DamagedAvro, match="0 entries end at byte 0 of a block of 5"):
        list(ManifestDecoder(header + b"\x00" + b"\x0aXXXXX" + header[-16:]).entries())


def test_an_unknown_codec_is_named(lake: Lake) -> None:
    _, bytes_, _ = _manifest(lake, FileContent.DATA, 2)
    content = bytes_.replace(b"\x0edeflate", b"\x0edeflulu")
    with pytest.raises(UnknownAvro, match="codec is 'deflulu'"):
        list(ManifestDecoder(content).entries())
