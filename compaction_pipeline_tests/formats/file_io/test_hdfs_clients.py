"""What becomes of the errors of the HDFS client, and of a client whose process ends. Tests on a real HDFS are in `interop/`."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from compaction_pipeline.core.storage_failures import StorageFailure, storage_failure
from compaction_pipeline.formats.file_io.hdfs_clients import hdfs_client, hdfs_place, in_our_words
from compaction_pipeline.formats.file_io.kerberos import lifetime
from compaction_pipeline.formats.file_io.object_io import ObjectFileIO

PLACE = "hdfs://nn/wh/db.expired_tokens/t/f.parquet"


@pytest.mark.parametrize(
    ("kind", "text", "error", "means"),
    [
        ("FileNotFoundError", "/f", FileNotFoundError, StorageFailure.ABSENT),
        ("FileNotFoundError", "Path is not a file: /a\n\tat org.apache", IsADirectoryError, StorageFailure.OTHER),
        ("FileExistsError", "/f already exists\n\tat x", FileExistsError, StorageFailure.OTHER),
        ("IsADirectoryError", "it is a folder", IsADirectoryError, StorageFailure.OTHER),
        ("RuntimeError", 'RPCError("org.apache.hadoop.security.AccessControlException", "Permission denied: user=bob\\n\\tat x")',
         PermissionError, StorageFailure.DENIED),
        ("RuntimeError", 'RPCError("org.apache.hadoop.hdfs.protocol.DSQuotaExceededException", "quota")', OSError, StorageFailure.FULL),
        ("RuntimeError", 'RPCError("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "safe")', OSError, StorageFailure.PASSING),
        ("RuntimeError", 'RPCError("org.apache.hadoop.ipc.StandbyException", "standby")', OSError, StorageFailure.PASSING),
        ("OSError", "Connection refused (os error 111)", OSError, StorageFailure.PASSING),
        ("OSError", "RPC listener disconnected", ConnectionResetError, StorageFailure.PASSING),
        ("RuntimeError", "GSSAPIError(GSS_S_NO_CRED, 1, 2)", OSError, StorageFailure.CREDENTIALS),
        ("PanicException", "Cannot read past end of the file", OSError, StorageFailure.OTHER),
    ],
)  # fmt: skip
def test_each_error_of_the_client_has_its_meaning(kind: str, text: str, error: type[OSError], means: StorageFailure) -> None:
    found = in_our_words(kind, text, "read", PLACE)
    assert type(found) is error
    assert storage_failure(found) is means
    assert "\n" not in str(found)
    assert PLACE in str(found)


def test_a_client_whose_process_ended_is_made_anew() -> None:
    place = hdfs_place({"hdfs.conf.dfs.client.failover.max.attempts": "1000"}, "hdfs", "127.0.0.1:1")
    client = hdfs_client(place)
    assert hdfs_client(place) is client
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(lambda: client.request("status", "/f", location=PLACE))
        client.end(signal.SIGKILL)
        with pytest.raises(ConnectionResetError, match="process has ended"):
            answer.result(60)
    with pytest.raises(ConnectionResetError):
        client.request("status", "/f", location=PLACE)
    other = hdfs_client(place)
    assert other is not client
    other.end(signal.SIGKILL)


def test_a_path_that_is_refused_fails_alone_in_a_deletion_of_many() -> None:
    path = "hdfs://127.0.0.1:1/t/a?b"
    assert "rename it" in str(ObjectFileIO({}).delete_many([path])[path])


def test_two_clients_have_two_environments() -> None:
    one, two = hdfs_place({"hdfs.user": "a"}, "hdfs", "nn"), hdfs_place({"hdfs.user": "b"}, "hdfs", "nn")
    assert one != two
    assert one == hdfs_place({"hdfs.user": "a", "s3.region": "r"}, "hdfs", "nn")
    assert "HADOOP_USER_NAME" not in os.environ


@pytest.mark.parametrize("cache", [b"", b"\x05\x03", b"\x05\x04\x00", b"\x05\x04\x00\x00", b"\x05\x04\x00\x00" + bytes(12)])
def test_what_is_no_ticket_cache_is_told(cache: bytes) -> None:
    with pytest.raises(ValueError, match="ticket cache"):
        lifetime(cache)
