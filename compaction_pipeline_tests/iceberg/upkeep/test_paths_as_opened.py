"""Paths that compare as the same open one file in PyIceberg's FileIO and in ours, and paths that do not open others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.core.upkeep.paths import Relation, compared, full_path
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO
from compaction_pipeline_tests.object_store import ObjectStore, object_store

NAMES = ("a%20b.parquet", "a b.parquet", "a+b.parquet", "a%2520b.parquet", "A%20b.parquet", "dt=10%3A00", "dt=10:00", "a;b", "é")


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


def content(io: PyArrowFileIO, path: str) -> str:
    with io.new_input(path).open() as stream:
        return bytes(stream.read()).decode()


@pytest.mark.parametrize("scheme", ["", "file:", "file://", "FILE://"])
def test_percent_signs_are_letters_on_this_host(tmp_path: Path, scheme: str) -> None:
    for name in NAMES:
        (tmp_path / name).write_text(name)
    for name in NAMES:
        path = f"{scheme}{tmp_path}/{name}"
        opened = content(PyArrowFileIO(), path)
        assert [other for other in NAMES if compared(full_path(path), full_path(f"{tmp_path}/{other}")) is Relation.SAME] == [opened]


@pytest.mark.parametrize("spelling", ["//", "/./", "/x/../"])
def test_slashes_and_dots_are_steps_on_this_host(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "f").write_text("f")
    path = f"file://{tmp_path}{spelling}f"
    assert content(PyArrowFileIO(), path) == "f"
    assert compared(full_path(path), full_path(f"{tmp_path}/f")) is Relation.SAME


@pytest.mark.parametrize("kind", [ObjectFileIO, PyArrowFileIO])
@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3"])
def test_percent_signs_are_letters_in_s3(store: ObjectStore, kind: type[PyArrowFileIO], scheme: str) -> None:
    store.objects.update({f"t/{name}": name.encode() for name in NAMES})
    for name in NAMES:
        path = store.url(f"t/{name}").replace("s3:", f"{scheme}:")
        opened = content(kind(store.properties), path)
        assert [one for one in NAMES if compared(full_path(path), full_path(store.url(f"t/{one}"))) is Relation.SAME] == [opened]


@pytest.mark.parametrize("kind", [ObjectFileIO, PyArrowFileIO])
@pytest.mark.parametrize("tail", ["?versionId=1", "#x", "\t"])
def test_a_path_that_opens_another_file_than_it_says_is_a_mismatch_with_that_file(
    store: ObjectStore, kind: type[PyArrowFileIO], tail: str
) -> None:
    store.objects["t/f"] = b"f"
    path = store.url(f"t/f{tail}")
    assert content(kind(store.properties), path) == "f"
    assert compared(full_path(path), full_path(store.url("t/f"))) is Relation.MISMATCH
