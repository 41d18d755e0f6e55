"""A listing with sizes and times, of this host, of an S3 with keys, and of one that PyArrow has to open: whole, or an error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyarrow.fs import FileInfo, FileSelector, FileType, LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.core.errors import AccessDenied, StorageUnavailable, TableRefused
from compaction_pipeline.core.upkeep.orphan_rules import ListedFile
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO
from compaction_pipeline.iceberg.upkeep import listed_files as module
from compaction_pipeline.iceberg.upkeep.listed_files import listed_files
from compaction_pipeline_tests.object_store import Fault, ObjectStore, object_store

KEYS = ("t/data/a.parquet", "t/data/dt=1/b%20c.parquet", "t/data/dt=1/b c.parquet", "t/metadata/m.json", "t2/data/a.parquet", "t")
NEW_YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        running.objects.update({key: b"x" * (1 + place) for place, key in enumerate(KEYS)})
        yield running


@pytest.fixture(params=["keys", "PyArrow"])
def io(request: pytest.FixtureRequest, store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectFileIO:
    """A FileIO of the store, whose client we make ourselves, or which PyArrow has to open."""
    if request.param == "PyArrow":
        monkeypatch.setattr(module, "s3_bucket", lambda properties, bucket: None)
    return ObjectFileIO(store.properties)


def failing(page: int, fault: Fault) -> Callable[[str, str], Fault | None]:
    """Answer this page of a listing with a fault, and all others well."""
    pages = iter(range(10**6))
    return lambda method, key: fault if method == "GET" and not key and next(pages) == page else None


def test_a_listing_of_s3_has_each_object_below_with_size_and_time(store: ObjectStore, io: ObjectFileIO) -> None:
    files = list(listed_files(io, store.url("t")))
    assert sorted(file.path for file in files) == [store.url(key) for key in sorted(KEYS) if key.startswith("t/")]
    assert {file.size_bytes for file in files} == {1, 2, 3, 4}
    assert {file.modified_at for file in files} == {NEW_YEAR}


def test_a_path_begins_as_the_location_does(store: ObjectStore, io: ObjectFileIO) -> None:
    location = store.url("t/").replace("s3://", "s3a://")
    assert all(
        file.path.startswith(f"{location}data/") or file.path.startswith(f"{location}metadata/") for file in listed_files(io, location)
    )


def test_t2_is_not_listed_with_t_and_what_is_not_there_is_empty(store: ObjectStore, io: ObjectFileIO) -> None:
    assert [file.path for file in listed_files(io, store.url("t2"))] == [store.url("t2/data/a.parquet")]
    assert list(listed_files(io, store.url("t3"))) == []


def test_a_listing_of_many_pages_is_whole(store: ObjectStore, io: ObjectFileIO) -> None:
    store.page_objects = 1
    assert len(list(listed_files(io, store.url("t")))) == 4


@pytest.mark.parametrize("page", [0, 1, 2, 3])
def test_a_listing_that_breaks_raises_whichever_page_failed(store: ObjectStore, io: ObjectFileIO, page: int) -> None:
    store.page_objects = 1
    store.fault = failing(page, Fault("status", 403, "AccessDenied"))
    with pytest.raises(AccessDenied):
        list(listed_files(io, store.url("t")))


def test_objects_have_their_etag_where_we_list_them(store: ObjectStore) -> None:
    [file] = listed_files(ObjectFileIO(store.properties), store.url("t2"))
    assert file.version is not None
    store.objects["t2/data/a.parquet"] = b"other"
    [changed] = listed_files(ObjectFileIO(store.properties), store.url("t2"))
    assert changed.size_bytes == file.size_bytes
    assert changed.version not in (None, file.version)


def test_one_request_tells_of_a_thousand_objects(store: ObjectStore) -> None:
    store.objects.update({f"many/{number:05d}": b"" for number in range(2500)})
    store.counts()
    assert len(list(listed_files(ObjectFileIO(store.properties), store.url("many")))) == 2500
    assert store.counts() == {"GET": 3}


def test_the_empty_object_of_a_folder_is_no_file_outside_of_it(store: ObjectStore, io: ObjectFileIO) -> None:
    store.objects["t2/"] = b""
    assert [file.path for file in listed_files(io, store.url("t2"))] == [store.url("t2/data/a.parquet")]


def test_an_object_that_the_client_cannot_name_breaks_the_listing(store: ObjectStore) -> None:
    store.objects["t2//a.parquet"] = b"1"
    with pytest.raises(StorageUnavailable, match="empty path segment"):
        list(listed_files(ObjectFileIO(store.properties), store.url("t2")))


def test_a_store_that_answers_with_other_folders_is_not_trusted(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "listed_objects", lambda bucket, prefix: [{"path": "t2/data/a.parquet"}])
    with pytest.raises(StorageUnavailable, match="cannot be trusted"):
        list(listed_files(ObjectFileIO(store.properties), store.url("t")))


@pytest.mark.parametrize("location", ["", "/", "s3://b/t?x", "file:///t#x"])
def test_a_location_that_opens_another_place_is_refused(location: str) -> None:
    with pytest.raises(TableRefused, match="opens another place"):
        list(listed_files(PyArrowFileIO(), location))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for below in ("t/data/dt=a%20b/x", "t/data/dt=a b/x", "t/y", "t2/z"):
        path = tmp_path / below
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(below)
    return tmp_path


@pytest.fixture(params=["host", "PyArrow"])
def local(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[ListedFile]]:
    """Lists a folder of this host as such, or as a file system that only PyArrow knows."""
    if request.param == "PyArrow":
        monkeypatch.setattr(module, "_of_host", lambda path: module._of_file_system(LocalFileSystem(), path))
    return lambda location: list(listed_files(PyArrowFileIO(), location))


@pytest.mark.parametrize("scheme", ["file://", "file:", ""])
def test_a_listing_of_this_host_has_each_file_below(local: Callable[[str], list[ListedFile]], folder: Path, scheme: str) -> None:
    location = f"{scheme}{folder}/t"
    found = {file.path: file for file in local(location)}
    assert sorted(found) == [f"{location}/data/dt=a b/x", f"{location}/data/dt=a%20b/x", f"{location}/y"]
    assert {file.size_bytes for file in found.values()} == {len("t/y"), len("t/data/dt=a b/x"), len("t/data/dt=a%20b/x")}
    assert all(abs(file.modified_at - datetime.now(timezone.utc)) < timedelta(minutes=5) for file in found.values())
    assert local(f"{scheme}{folder}/t3") == []


def test_a_folder_that_may_not_be_listed_breaks_the_listing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may run as a user who may list everything, so the folder is denied here."""
    scandir = os.scandir

    def denied(path: str) -> Iterator[os.DirEntry[str]]:
        if path.endswith("dt=a b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    class Denying(LocalFileSystem):
        def get_file_info(self, selector: FileSelector) -> list[FileInfo]:
            if selector.base_dir.endswith("dt=a b"):
                raise PermissionError(13, "Permission denied", selector.base_dir)
            return list(super().get_file_info(selector))

    of_host = module._of_host
    monkeypatch.setattr(os, "scandir", denied)
    for walk in (of_host, lambda path: module._of_file_system(Denying(), path)):
        monkeypatch.setattr(module, "_of_host", walk)
        with pytest.raises(AccessDenied, match="dt=a b"):
            list(listed_files(PyArrowFileIO(), f"{folder}/t"))


@pytest.mark.usefixtures("local")
def test_a_folder_that_vanishes_while_it_is_listed_breaks_the_listing(folder: Path) -> None:
    listing = listed_files(PyArrowFileIO(), f"{folder}/t")
    next(listing)
    shutil.rmtree(folder / "t" / "data")
    with pytest.raises(StorageUnavailable, match="missing"):
        list(listing)


def test_links_are_not_followed_and_a_copy_is_as_young_as_its_name(folder: Path) -> None:
    (folder / "t" / "link").symlink_to(folder / "t2")
    (folder / "t" / "file").symlink_to(folder / "t2" / "z")
    os.utime(folder / "t" / "y", (0, 0))
    found = {file.path.rsplit("/", 1)[-1]: file for file in listed_files(PyArrowFileIO(), f"{folder}/t")}
    assert sorted(found) == ["x", "y"]
    assert found["y"].modified_at > datetime.now(timezone.utc) - timedelta(minutes=5)


def test_a_file_without_a_time_breaks_the_listing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Timeless:
        def get_file_info(self, selector: object) -> list[FileInfo]:
            return [FileInfo(f"{folder}/t/y", FileType.File, size=3)]

    monkeypatch.setattr(module, "_of_host", lambda path: module._of_file_system(Timeless(), path))
    with pytest.raises(StorageUnavailable, match="no time"):
        list(listed_files(PyArrowFileIO(), f"{folder}/t"))
