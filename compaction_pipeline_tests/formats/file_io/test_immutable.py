"""Which files the cache keeps, and its bound."""

from __future__ import annotations

import pytest

from compaction_pipeline.formats.file_io.immutable import ImmutableFiles, is_unique

_UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("name", "unique"),
    [
        (f"00001-{_UUID}.metadata.json", True),
        (f"{_UUID}-m0.avro", True),
        ("snap-4286073157573689300-1-02cde89994d8.avro", True),
        ("02cde89994d8-1-77960eca-m0.avro", True),
        ("v3.metadata.json", False),
        ("version-hint.text", False),
        (f"{_UUID}/v3.metadata.json", False),
    ],
)
def test_names_that_only_one_file_can_have(name: str, unique: bool) -> None:
    assert is_unique(f"s3://b/t/metadata/{name}") is unique


def test_only_metadata_with_unique_names_is_kept() -> None:
    files, bucket = ImmutableFiles(1000), object()
    for path in (f"{_UUID}.parquet", "v3.metadata.json", f"{_UUID}-m0.avro"):
        files.keep(bucket, path, b"x")
    assert [files.get(bucket, path) for path in (f"{_UUID}.parquet", "v3.metadata.json", f"{_UUID}-m0.avro")] == [None, None, b"x"]


def test_one_identity_does_not_see_what_another_has_read() -> None:
    files = ImmutableFiles(1000)
    files.keep("one", f"{_UUID}-m0.avro", b"x")
    assert files.get("other", f"{_UUID}-m0.avro") is None


def test_the_oldest_files_are_dropped_at_the_bound_and_large_ones_are_not_kept() -> None:
    files, bucket = ImmutableFiles(80), object()
    for number in range(9):
        files.keep(bucket, f"{_UUID}-m{number}.avro", b"0123456789")
    files.keep(bucket, f"{_UUID}-m10.avro", b"01234567890")
    kept = [number for number in range(11) if files.get(bucket, f"{_UUID}-m{number}.avro")]
    assert kept == [1, 2, 3, 4, 5, 6, 7, 8]
