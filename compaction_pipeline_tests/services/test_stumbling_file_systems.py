"""Metadata on file systems that fail for a moment, other than S3. It is read again with growing pauses, and never called lost."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
from obstore.exceptions import GenericError
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

from compaction_pipeline.core.errors import AccessDenied, StorageUnavailable
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.formats.file_io.s3_stores import RETRIES
from compaction_pipeline.iceberg import second_look
from compaction_pipeline.iceberg.second_look import looked_at_twice
from compaction_pipeline_tests.services.house import House


class StumblingIO(PyArrowFileIO):
    """PyArrow's FileIO. `fault` gets the path of a metadata file and how often it was opened, and returns the error to raise, or None."""

    opened: ClassVar[Counter[str]] = Counter()
    fault: ClassVar[Callable[[str, int], OSError | None]] = staticmethod(lambda path, n: None)

    def new_input(self, location: str) -> Any:
        return Stumbling(super().new_input(location)) if "/metadata/" in location else super().new_input(location)


class Stumbling(InputFile):
    def __init__(self, inner: InputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def open(self, seekable: bool = True) -> Any:
        StumblingIO.opened[self.location] += 1
        failure = StumblingIO.fault(self.location, StumblingIO.opened[self.location])
        if failure is not None:
            raise failure
        return self._inner.open(seekable)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, in seconds. The test does not really wait."""
    made: list[float] = []
    monkeypatch.setattr(second_look, "sleep", made.append)
    return made


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    no_fault = StumblingIO.fault
    StumblingIO.opened.clear()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/wh",
        "init_catalog_tables": "true",
        "py-io-impl": f"{__name__}.StumblingIO",
    }
    yield House(tmp_path, properties=properties)
    StumblingIO.fault = no_fault


STUMBLES = (
    OSError(errno.ETIMEDOUT, "Connection timed out"),
    ConnectionResetError("peer"),
    OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"),
    OSError("HDFS: org.apache.hadoop.ipc.StandbyException"),
)


@pytest.mark.parametrize("failure", STUMBLES, ids=lambda failure: str(failure)[:30])
def test_metadata_whose_files_fail_twice_each_is_read_in_the_end(house: House, pauses: list[float], failure: OSError) -> None:
    table = house.fragmented()
    table.delete_positions((min(file.path for file in table.files()), 0))
    StumblingIO.opened.clear()
    StumblingIO.fault = staticmethod(lambda path, n: failure if n <= 2 else None)
    assert house.services.compact_tables.compact(table.identifier, PlanRequest(force=True)).committed
    met = [path for path, count in StumblingIO.opened.items() if count > 2]
    assert len(pauses) >= 2 * len(met) >= 6
    StumblingIO.fault = staticmethod(lambda path, n: None)
    assert len(table.live_ids()) == 11


def test_patience_ends_and_the_error_never_advises_to_restore_a_file(house: House, pauses: list[float]) -> None:
    table = house.fragmented()
    StumblingIO.opened.clear()
    StumblingIO.fault = staticmethod(lambda path, n: OSError(errno.ETIMEDOUT, "Connection timed out", path))
    refresh = house.services.one_table.refresh(table.identifier)
    assert isinstance(refresh.error, StorageUnavailable)
    assert "could not be read or written: " in str(refresh.error)
    assert "restore" not in str(refresh.error)
    assert list(StumblingIO.opened.values()) == [1 + RETRIES]
    assert len(pauses) == RETRIES
    StumblingIO.fault = staticmethod(lambda path, n: None)
    assert house.services.one_table.refresh(table.identifier).error is None


def test_a_missing_right_is_reported_at_once(house: House, pauses: list[float]) -> None:
    table = house.fragmented()
    StumblingIO.fault = staticmethod(lambda path, n: PermissionError(errno.EACCES, "Permission denied", path))
    assert isinstance(house.services.one_table.refresh(table.identifier).error, AccessDenied)
    assert pauses == []


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (OSError("SlowDown: Please reduce your request rate (GET s3://b/x)"), GenericError("after 8 retries")),
        (requests.ConnectTimeout("timed out"), None),
    ],
    ids=["a client that was patient", "a catalog, which has limits of its own"],
)
def test_an_error_is_not_retried_if_the_client_has_retried_or_waited_already(
    pauses: list[float], failure: OSError, cause: Exception | None
) -> None:
    tries: list[int] = []

    @looked_at_twice
    def read() -> None:
        tries.append(1)
        raise failure from cause

    with pytest.raises(type(failure)):
        read()
    assert (len(tries), pauses) == (1, [])
