"""Real error texts of storage clients, and the kind of failure that each one means."""

from __future__ import annotations

import errno

import pytest

from compaction_pipeline.core.storage_failures import StorageFailure, advice, needs_a_person, storage_failure

_ARROW = "When reading information for key 't/x' in bucket 'lakehouse': AWS Error {} during {} operation: {}"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(_ARROW.format("SLOW_DOWN", "GetObject", "Reduce your request rate")), StorageFailure.PASSING),
        (OSError(_ARROW.format("NETWORK_CONNECTION", "HeadObject", "curlCode: 7, Couldn't connect to server")), StorageFailure.PASSING),
        (OSError(_ARROW.format("UNKNOWN (HTTP status 500)", "HeadObject", "No response body.")), StorageFailure.PASSING),
        (OSError(_ARROW.format("SERVICE_UNAVAILABLE", "PutObject", "")), StorageFailure.PASSING),
        (OSError(_ARROW.format("REQUEST_TIMEOUT", "PutObject", "")), StorageFailure.PASSING),
        (OSError(_ARROW.format("ACCESS_DENIED", "HeadObject", "No response body.")), StorageFailure.DENIED),
        (
            OSError(_ARROW.format("UNKNOWN (HTTP status 400)", "GetObject", "Unable to parse ExceptionName: ExpiredToken")),
            StorageFailure.CREDENTIALS,
        ),
        (OSError(_ARROW.format("INVALID_ACCESS_KEY_ID", "GetObject", "")), StorageFailure.CREDENTIALS),
        (OSError(_ARROW.format("SIGNATURE_DOES_NOT_MATCH", "GetObject", "")), StorageFailure.CREDENTIALS),
        (OSError(_ARROW.format("UNKNOWN (HTTP status 301)", "HeadObject", "No response body.")), StorageFailure.REGION),
        (OSError(_ARROW.format("NO_SUCH_BUCKET", "GetObject", "")), StorageFailure.BUCKET),
        (OSError("Path does not exist 'lakehouse/t/x'"), StorageFailure.ABSENT),
        (FileNotFoundError(errno.ENOENT, "NoSuchKey: none, HTTP status 404 (GET)", "s3://b/x"), StorageFailure.ABSENT),
        (FileNotFoundError(errno.ENOENT, "NoSuchBucket: none, HTTP status 404 (GET)", "s3://b/x"), StorageFailure.BUCKET),
        (PermissionError(errno.EACCES, "ExpiredToken: expired, HTTP status 403 (GET)", "s3://b/x"), StorageFailure.CREDENTIALS),
        (PermissionError(errno.EACCES, "AccessDenied: no, HTTP status 403 (GET)", "s3://b/x"), StorageFailure.DENIED),
        (PermissionError("Cannot create file, access denied: s3://b/x"), StorageFailure.DENIED),
        (OSError("HTTP error: request or response body error (GET s3://b/x)"), StorageFailure.PASSING),
        (
            OSError("Error performing GET http://h/b/x, after 8 retries - HTTP error: error sending request (GET s3://b/x)"),
            StorageFailure.PASSING,
        ),
        (OSError(errno.ECONNRESET, "Connection reset by peer"), StorageFailure.PASSING),
        (OSError(errno.EROFS, "Read-only file system"), StorageFailure.DENIED),
        (OSError(errno.ENOSPC, "No space left on device"), StorageFailure.FULL),
        (TimeoutError("timed out"), StorageFailure.PASSING),
        (OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted in ReadObject())"), StorageFailure.PASSING),
        (OSError("GetProperties for 'https://a.blob/x' failed: 503 The server is busy. ServerBusy"), StorageFailure.PASSING),
        (OSError("HDFS: RemoteException: org.apache.hadoop.ipc.StandbyException: READ is not supported"), StorageFailure.PASSING),
        (ConnectionResetError("peer"), StorageFailure.PASSING),
        (OSError("An error occurred (SlowDown) when calling the PutObject operation"), StorageFailure.PASSING),
        # The error of a damaged file is no reason to wait.
        (OSError("Unexpected end of stream: Page was smaller (12) than expected (99)"), StorageFailure.OTHER),
        (OSError("Couldn't deserialize thrift: TProtocolException: Invalid data"), StorageFailure.OTHER),
        (ValueError("Parquet magic bytes not found in footer"), StorageFailure.OTHER),
        (OSError("Error reading bytes at 1000 of /data/4031/5030.parquet"), StorageFailure.OTHER),
    ],
)
def test_each_error_means_what_its_store_says(error: BaseException, kind: StorageFailure) -> None:
    assert storage_failure(error) is kind


def test_a_failure_that_a_person_must_mend_has_an_advice() -> None:
    waiting = {kind for kind in StorageFailure if needs_a_person(kind)}
    assert waiting == {StorageFailure.DENIED, StorageFailure.CREDENTIALS, StorageFailure.REGION, StorageFailure.BUCKET}
    assert all(advice(kind) for kind in waiting)


@pytest.mark.parametrize("name", ["expired_tokens", "throttling", "slow_down", "access_denied", "permanentredirect", "no_such_bucket"])
def test_the_name_of_a_table_does_not_change_the_kind_of_failure(name: str) -> None:
    path = f"s3://lake/{name}/data/{name}.parquet"
    assert storage_failure(FileNotFoundError(2, "NoSuchKey: gone (GET)", path)) is StorageFailure.ABSENT
    assert storage_failure(FileNotFoundError(2, "No such file or directory", f"/lake/{name}/f.parquet")) is StorageFailure.ABSENT
    assert storage_failure(OSError(f"InvalidRange: no such range (GET {path})")) is StorageFailure.OTHER
    text = f"When reading information for key 'lake/{name}/f.parquet' in bucket 'b': AWS Error SLOW_DOWN during HeadObject operation"
    assert storage_failure(OSError(text)) is StorageFailure.PASSING
