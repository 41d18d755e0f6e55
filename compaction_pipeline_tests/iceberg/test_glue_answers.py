"""What errors of AWS Glue prove about a commit. A commit that may still land keeps its manifests, or the table cannot be read afterwards.

botocore is no dependency of the tests, so its errors are copied here with their bases (botocore 1.43). Some of them are OSErrors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.ports import CommitState
from compaction_pipeline.core.errors import CommitStateUnknown
from compaction_pipeline.iceberg.catalogs.commit_answers import answer_of, is_metadata_not_written
from compaction_pipeline.iceberg.commit.committer import IcebergCommitter
from compaction_pipeline.iceberg.keyed.write_commits import commit_write
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.iceberg.manifests.partitions import partition_struct
from compaction_pipeline.iceberg.rewrite_files import AddedFile, SnapshotChange, Transaction
from compaction_pipeline_tests.iceberg.lake import Lake

RequestException = type("RequestException", (IOError,), {"__module__": "botocore.vendored.requests.exceptions"})
BotoCoreError = type("BotoCoreError", (Exception,), {"__module__": "botocore.exceptions"})
ReadTimeoutError: Any = type("ReadTimeoutError", (BotoCoreError, RequestException), {"__module__": "botocore.exceptions"})


class ClientError(Exception):
    """`botocore.exceptions.ClientError`: the service answered, after the client had sent the request `resent` times more."""

    def __init__(self, code: str, resent: int, operation: str = "UpdateTable") -> None:
        super().__init__(code)
        self.operation_name = operation
        self.response = {"Error": {"Code": code}, "ResponseMetadata": {"RetryAttempts": resent}}


def concurrent_modification(resent: int) -> CommitFailedException:
    """What PyIceberg's Glue catalog makes of a ConcurrentModificationException."""
    error = CommitFailedException("Cannot commit db.t because Glue detected concurrent update to table version 7")
    error.__cause__ = ClientError("ConcurrentModificationException", resent)
    return error


@pytest.fixture
def glue(lake: Lake) -> Lake:
    """A lake whose catalog is called like PyIceberg's for Glue. As that one does, it writes the metadata file first.

    Its first commits are answered by `plans`, which may carry them out.
    """
    real = type(lake.catalog)

    def commit_table(self: Any, *asked: Any) -> Any:
        return self.plans.pop()(lambda: real.commit_table(self, *asked)) if self.plans else real.commit_table(self, *asked)

    lake.catalog.__class__ = type("GlueCatalog", (real,), {"commit_table": commit_table, "plans": []})
    return lake


def fault(lake: Lake, first: Callable[[Callable[[], Any]], Any]) -> None:
    """Let the first commit be answered by `first`."""
    catalog: Any = lake.catalog
    catalog.plans.append(first)


def test_a_timeout_of_glue_does_not_say_that_the_metadata_file_was_not_written(glue: Lake) -> None:
    error = ReadTimeoutError("Read timeout on endpoint URL: https://glue.eu-central-1.amazonaws.com/")
    assert not is_metadata_not_written(glue.catalog, error)
    # A full disk still says it.
    assert is_metadata_not_written(glue.catalog, OSError(28, "No space left on device"))


def test_a_commit_that_glue_carried_out_without_an_answer_keeps_its_manifests(glue: Lake) -> None:
    t = glue.table()
    t.ids(1)
    t.ids(2)
    merge = t.merge()

    def silent(swap: Callable[[], Any]) -> Any:
        swap()
        raise ReadTimeoutError("Read timeout on endpoint URL: https://glue.eu-central-1.amazonaws.com/")

    fault(glue, silent)
    try:
        assert t.commit(merge).state is CommitState.COMMITTED
    finally:
        assert t.live_ids() == [1, 2]


def test_a_conflict_that_answers_a_request_sent_twice_proves_nothing(glue: Lake) -> None:
    once, twice = concurrent_modification(0), concurrent_modification(1)
    # The class of SQL catalogs is sure of its own conflicts. This one only has their name.
    catalog: Any = type("GlueCatalog", (), {})()
    assert answer_of(catalog, once, ()) is Answer.LOST_RACE
    assert answer_of(catalog, twice, ()) is Answer.UNKNOWN


def test_a_request_of_a_commit_that_glue_still_carries_out_finds_its_manifests(glue: Lake) -> None:
    t = glue.table()
    t.ids(1)
    t.ids(2)
    merge, held = t.merge(), list[Callable[[], Any]]()

    def still_working(swap: Callable[[], Any]) -> Any:
        # The first request timed out, and Glue works on it. The client sent it again, and that met the first one.
        held.append(swap)
        raise concurrent_modification(1)

    def go_on(_: float = 0) -> None:
        while held:
            held.pop()()

    fault(glue, still_working)
    try:
        outcome = IcebergCommitter(glue.catalogs, sleep=go_on).commit(t.identifier, "record-1", [merge])
        assert outcome.state in (CommitState.UNKNOWN, CommitState.COMMITTED)
    finally:
        go_on()
        assert t.live_ids() == [1, 2]


def credentials_are_gone() -> None:
    """Raise what a provider of credentials raises while botocore works: an error of Python, in a frame of botocore."""
    names = {"__name__": "botocore.credentials"}
    exec("raise FileNotFoundError(2, 'No such file or directory', '/var/run/secrets/token')", names)


def sts_refuses() -> None:
    raise ClientError("ExpiredTokenException", 0, "AssumeRoleWithWebIdentity")


@pytest.mark.parametrize("new_credentials", [credentials_are_gone, sts_refuses])
@pytest.mark.parametrize("landed_at_once", [True, False])
def test_new_credentials_that_fail_before_a_request_is_sent_again_prove_nothing(
    glue: Lake, new_credentials: Callable[[], None], landed_at_once: bool
) -> None:
    t = glue.table()
    t.ids(1)
    t.ids(2)
    merge, held = t.merge(), list[Callable[[], Any]]()

    def timed_out(swap: Callable[[], Any]) -> Any:
        # The first request got no answer, and Glue works on it. The client asks for new credentials before it would send it again.
        held.append(swap)
        if landed_at_once:
            held.pop()()
        new_credentials()

    def go_on(_: float = 0) -> None:
        while held:
            held.pop()()

    fault(glue, timed_out)
    try:
        outcome = IcebergCommitter(glue.catalogs, sleep=go_on).commit(t.identifier, "record-1", [merge])
        assert outcome.state in (CommitState.UNKNOWN, CommitState.COMMITTED)
    finally:
        go_on()
        assert t.live_ids() == [1, 2]


def test_an_answer_of_glue_itself_proves_that_nothing_was_committed() -> None:
    catalog: Any = type("GlueCatalog", (), {})()
    for operation in ("UpdateTable", "GetTable"):
        assert answer_of(catalog, ClientError("ExpiredTokenException", 0, operation), ()) is Answer.REFUSED
    assert answer_of(catalog, ClientError("ExpiredTokenException", 0, "AssumeRole"), ()) is Answer.UNKNOWN


def test_a_request_of_a_writer_that_glue_still_carries_out_finds_its_manifests(glue: Lake) -> None:
    t = glue.table()
    t.ids(1)
    file, held = t.data_file([{"id": 2, "name": "n2"}]), list[Callable[[], Any]]()
    store = glue.catalog.load_table(("db", "t"))

    def stage(summary: Any, attempt: int) -> Transaction:
        store.refresh()
        transaction = Transaction(store, attempt=attempt)
        added = [AddedFile(data_file_of(file, partition_struct(store.metadata, file.spec_id)))]
        transaction.stage(SnapshotChange(Operation.APPEND, added, properties=summary))
        return transaction

    def still_working(swap: Callable[[], Any]) -> Any:
        held.append(swap)
        raise concurrent_modification(1)

    def go_on(_: float = 0) -> None:
        while held:
            held.pop()()

    fault(glue, still_working)
    try:
        with pytest.raises(CommitStateUnknown):
            commit_write(store, "table db.t", stage, go_on)
    finally:
        go_on()
        assert t.live_ids() == [1, 2]
