"""How many requests each way of reading and writing needs, and which error each failure gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.file_io.object_io import OBJECT_FILE_IO
from compaction_pipeline.formats.file_io.object_io import PART_BYTES, ObjectFileIO
from compaction_pipeline.formats.file_io.ranges import RangedFile
from compaction_pipeline.formats.file_io.s3_stores import s3_bucket
from compaction_pipeline_tests.object_store import Fault, ObjectStore

_MANIFEST = "t/metadata/0f8fad5b-d9cb-469f-a165-70867728950e-m0.avro"


def _io(store: ObjectStore) -> ObjectFileIO:
    return ObjectFileIO(store.properties)


def test_the_name_of_the_file_io_is_one_that_pyiceberg_loads() -> None:
    assert isinstance(load_file_io({"py-io-impl": OBJECT_FILE_IO}, "s3://b/t"), ObjectFileIO)


def test_a_whole_file_is_one_get(store: ObjectStore) -> None:
    store.objects["t/x"] = b"abc"
    with _io(store).new_input(store.url("t/x")).open() as stream:
        assert stream.read() == b"abc"
    assert store.counts() == {"GET": 1}


def test_a_range_is_one_get_and_may_reach_past_the_end(store: ObjectStore) -> None:
    store.objects["t/x"] = b"abcdef"
    file = _io(store).new_input(store.url("t/x"))
    assert [file.read(1, 3).to_pybytes(), file.read(4, 99).to_pybytes(), file.read(2, 0).to_pybytes()] == [b"bcd", b"ef", b""]
    assert store.counts() == {"GET": 2}


def test_a_file_below_the_part_size_is_one_put_and_knows_its_length(store: ObjectStore) -> None:
    output = _io(store).new_output(store.url(_MANIFEST))
    with output.create() as stream:
        stream.write(b"abc")
        stream.write(memoryview(b"def"))
        assert stream.tell() == 6
    assert len(output) == 6
    assert store.objects == {_MANIFEST: b"abcdef"}
    assert store.counts() == {"PUT": 1}


def test_an_empty_file_is_written(store: ObjectStore) -> None:
    _io(store).new_output(store.url("t/empty")).create(overwrite=True).close()
    assert store.objects == {"t/empty": b""}


def test_a_larger_file_goes_up_in_parts(store: ObjectStore) -> None:
    data = bytes(range(256)) * (PART_BYTES // 100)
    with _io(store).new_output(store.url("t/x")).create(overwrite=True) as stream:
        for start in range(0, len(data), 1_000_003):
            stream.write(data[start : start + 1_000_003])
    assert store.objects == {"t/x": data}
    assert store.counts()["PUT"] == -(-len(data) // PART_BYTES)


def test_a_stream_left_by_an_error_creates_nothing(store: ObjectStore) -> None:
    def fail_in_the_middle() -> None:
        with _io(store).new_output(store.url("t/x")).create(overwrite=True) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_in_the_middle()
    assert not store.objects


def test_a_file_name_that_may_exist_is_looked_up_before_it_is_written(store: ObjectStore) -> None:
    store.objects["t/version-hint.text"] = b"1"
    with pytest.raises(FileExistsError):
        _io(store).new_output(store.url("t/version-hint.text")).create()


def test_metadata_that_never_changes_is_read_once(store: ObjectStore) -> None:
    store.objects[_MANIFEST] = b"entries"
    for _ in range(3):
        assert _io(store).new_input(store.url(_MANIFEST)).open().read() == b"entries"
    assert store.counts() == {"GET": 1}


def test_metadata_that_was_written_here_is_not_read_again(store: ObjectStore) -> None:
    with _io(store).new_output(store.url(_MANIFEST)).create() as stream:
        stream.write(b"entries")
    assert _io(store).new_input(store.url(_MANIFEST)).open().read() == b"entries"
    assert store.counts() == {"PUT": 1}


def test_metadata_that_was_deleted_is_not_remembered(store: ObjectStore) -> None:
    store.objects[_MANIFEST] = b"entries"
    _io(store).new_input(store.url(_MANIFEST)).open()
    _io(store).delete(store.url(_MANIFEST))
    with pytest.raises(FileNotFoundError):
        _io(store).new_input(store.url(_MANIFEST)).open()


@pytest.mark.parametrize("key", ["t/a=1%2F2/x", "t/a b/x", "t/ü[1]{}^~#/x".replace("#", "%23"), "t/a+b&c=d'/x", 't/"q"*/x'])
def test_keys_of_any_partition_value_are_read_written_and_deleted(store: ObjectStore, key: str) -> None:
    with _io(store).new_output(store.url(key)).create(overwrite=True) as stream:
        stream.write(b"abc")
    assert list(store.objects) == [key]
    assert _io(store).new_input(store.url(key)).read(0, 3).to_pybytes() == b"abc"
    _io(store).delete(store.url(key))
    assert not store.objects


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "NoSuchKey", StorageFailure.ABSENT),
        (404, "NoSuchBucket", StorageFailure.BUCKET),
        (403, "AccessDenied", StorageFailure.DENIED),
        (403, "SignatureDoesNotMatch", StorageFailure.CREDENTIALS),
        (403, "InvalidAccessKeyId", StorageFailure.CREDENTIALS),
        (400, "ExpiredToken", StorageFailure.CREDENTIALS),
        (400, "AuthorizationHeaderMalformed", StorageFailure.REGION),
        (301, "PermanentRedirect", StorageFailure.REGION),
    ],
)
@pytest.mark.parametrize("verb", ["GET", "HEAD", "PUT", "DELETE"])
def test_a_refused_request_is_sent_once_and_keeps_its_reason(
    store: ObjectStore, status: int, code: str, kind: StorageFailure, verb: str
) -> None:
    store.fault = lambda method, key: Fault("status", status, code)
    file = _io(store).new_input(store.url("t/x"))
    call = {"GET": file.open, "HEAD": file.__len__, "PUT": lambda: file.put(b"abc"), "DELETE": file.delete}[verb]
    with pytest.raises(OSError) as raised:
        call()
    # An answer to HEAD has no body, so it has no error code.
    told = kind if verb != "HEAD" or code in ("NoSuchKey", "AccessDenied", "PermanentRedirect") else None
    assert told is None or storage_failure(raised.value) is told
    assert sum(store.counts().values()) == 1


@pytest.mark.parametrize("fault", [Fault("status", 503, "SlowDown"), Fault("status", 500), Fault("close"), Fault("cut")])
def test_a_request_that_fails_in_passing_is_sent_again(store: ObjectStore, fault: Fault) -> None:
    store.objects["t/x"] = b"abcdef" * 100
    left = iter([fault, fault])
    store.fault = lambda method, key: next(left, None)
    assert _io(store).new_input(store.url("t/x")).read(0, 600).to_pybytes() == b"abcdef" * 100
    assert store.counts() == {"GET": 3}


@pytest.mark.parametrize(
    "more",
    [
        {"s3.role-arn": "arn:aws:iam::1:role/x"},
        {"s3.signer.endpoint": "v1/sign"},
        {"s3.secret-access-key": ""},
        {"s3.retry-strategy-impl": "a.B"},
    ],
)
def test_credentials_that_this_client_cannot_find_are_left_to_pyarrow(store: ObjectStore, more: dict[str, str]) -> None:
    assert s3_bucket({**store.properties, **more}, "lakehouse") is None


def test_where_this_client_cannot_find_credentials_pyarrow_reads(store: ObjectStore) -> None:
    assert isinstance(ObjectFileIO({**store.properties, "s3.signer.endpoint": "v1/sign"}).new_input("s3://lakehouse/t/x"), PyArrowFile)


def test_a_token_of_the_environment_is_not_mixed_with_a_key_of_the_properties(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-another-key")
    assert s3_bucket(store.properties, "lakehouse") is None
    assert s3_bucket({**store.properties, "s3.session-token": "own"}, "lakehouse") is not None


def test_other_schemes_are_pyarrows() -> None:
    assert isinstance(ObjectFileIO({}).new_input("file:///tmp/x"), PyArrowFile)


def test_bytes_of_a_large_file_that_are_in_memory_need_no_further_request(store: ObjectStore) -> None:
    data = bytes(number % 251 for number in range(600_000))
    store.objects["t/x"] = data
    file = RangedFile(_io(store).new_input(store.url("t/x")), len(data))
    file.hold([(10, 1000), (2000, 500), (400_000, 100)], 1 << 20)
    # Two ranges that are close together are read with one request.
    assert store.counts() == {"GET": 2}
    for start, length in ((10, 1000), (2000, 500), (1500, 900), (400_050, 50)):
        file.seek(start)
        assert file.read(length) == data[start : start + length]
    assert store.counts() == {}
    file.seek(-8, 2)
    assert file.read() == data[-8:]
    file.seek(-1000, 2)
    assert file.read(992) == data[-1000:-8]
    assert store.counts() == {"GET": 1}
    file.seek(100_000)
    assert file.read(3) == data[100_000:100_003]
    assert store.counts() == {"GET": 1}


def test_ranges_beyond_the_memory_bound_are_not_fetched(store: ObjectStore) -> None:
    store.objects["t/x"] = bytes(200_000)
    file = RangedFile(_io(store).new_input(store.url("t/x")), 200_000)
    file.hold([(0, 100_000)], 99_999)
    assert store.counts() == {}


def test_a_thousand_files_are_deleted_by_one_request(store: ObjectStore) -> None:
    keys = [f"t/data/{number:05d}.parquet" for number in range(2_500)]
    store.objects |= dict.fromkeys(keys, b"x") | {"t/data/kept.parquet": b"x"}
    assert ObjectFileIO(store.properties).delete_many([store.url(key) for key in keys]) == {}
    assert set(store.objects) == {"t/data/kept.parquet"}
    assert store.counts() == {"POST": 3}


def test_files_are_deleted_one_by_one_where_the_service_does_not_know_the_request(store: ObjectStore) -> None:
    store.objects |= dict.fromkeys(("a", "b"), b"x")
    store.fault = lambda method, key: Fault("status", 501, "NotImplemented") if method == "POST" else None
    assert ObjectFileIO(store.properties).delete_many([store.url("a"), store.url("b"), store.url("gone")]) == {}
    assert store.objects == {}


def test_each_file_that_cannot_be_deleted_is_told(store: ObjectStore, tmp_path: Path) -> None:
    store.objects |= dict.fromkeys(("a", "b"), b"x")
    local = tmp_path / "f"
    local.touch()
    store.fault = lambda method, key: Fault("status", 403, "AccessDenied") if method == "POST" or key == "b" else None
    failed = ObjectFileIO(store.properties).delete_many([store.url("a"), store.url("b"), f"file://{local}"])
    assert list(failed) == [store.url("b")]
    assert isinstance(failed[store.url("b")], PermissionError)
    assert set(store.objects) == {"b"}
    assert not local.exists()


@pytest.mark.parametrize("prefix", ["file://{}", "{}", "file:{}"])
def test_files_of_this_host_are_deleted_by_each_spelling_and_each_error_is_told(tmp_path: Path, prefix: str) -> None:
    """A path that needs no dividing goes past PyArrow, and must open the same file."""
    (tmp_path / "a folder").mkdir()
    there = [tmp_path / "plain.parquet", tmp_path / "a folder" / "b.parquet", tmp_path / "day=1%2F.parquet"]
    for path in there:
        path.write_bytes(b"x")
    given = [prefix.format(path) for path in (*there, tmp_path / "gone.parquet", tmp_path / "a folder", tmp_path / "plain.parquet" / "c")]
    failed = ObjectFileIO({}).delete_many(given)
    assert not any(path.exists() for path in there)
    assert failed.keys() <= set(given[4:])
    assert given[4] in failed, "a folder is no file"
    assert (tmp_path / "a folder").is_dir()


def test_a_path_that_steps_up_is_opened_as_pyarrow_opens_it(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "x" / "y")
    for folder in (tmp_path, tmp_path / "x"):
        (folder / "f").write_bytes(b"x")
    expected = PyArrowFileIO({})
    for path in (f"{tmp_path}/link/../f", f"file://{tmp_path}/./x/f"):
        read = expected.new_input(path)
        assert read.exists()
        ObjectFileIO({}).delete(path)
        assert not read.exists(), path


def test_a_path_that_another_store_opens_deletes_nothing_on_this_host(tmp_path: Path) -> None:
    local = tmp_path / "a.parquet"
    local.touch()
    elsewhere = ObjectFileIO({"DEFAULT_SCHEME": "gs", "DEFAULT_NETLOC": "bucket", "gcs.service.host": "http://localhost:9"})
    elsewhere.fs_by_scheme = lambda scheme, netloc: fs.SubTreeFileSystem(str(tmp_path / "store"), fs.LocalFileSystem())
    assert elsewhere.delete_many([str(local)]) == {}
    assert local.exists()
    assert elsewhere.delete_many([f"file://{local}"]) == {}
    assert not local.exists()
