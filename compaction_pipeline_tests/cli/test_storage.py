"""Commands check the storage of a catalog, and report when it refuses access."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compaction_pipeline.formats.file_io.object_io import immutable_files
from compaction_pipeline_tests.cli.conftest import Desk
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.object_store import Fault, ObjectStore, object_store


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture
def add(tmp_path: Path, store: ObjectStore) -> list[str]:
    """The command that registers a catalog with one table on the store."""
    own = {"type": "sql", "uri": f"sqlite:///{tmp_path}/served.db", "warehouse": store.url("wh"), **store.properties}
    Lake(tmp_path, properties={**own, "init_catalog_tables": "true", "catalog-name": "served"}).table("t").ids(1)
    immutable_files.clear()
    store.counts()
    return ["catalog", "add", "served", *(word for key, value in own.items() for word in ("-p", f"{key}={value}"))]


def _denied(method: str, key: str) -> Fault | None:
    return Fault("status", 403, "AccessDenied")


def test_a_catalog_whose_storage_refuses_access_is_registered_with_a_warning(desk: Desk, store: ObjectStore, add: list[str]) -> None:
    store.fault = _denied
    result = desk.type(*add)
    assert result.exit_code == 0
    assert "its storage denies access" in result.stderr
    assert "no permission" in result.stderr
    assert [item["catalog"] for item in desk.json("catalog", "list")] == ["served"]


def test_registering_a_catalog_reads_its_storage_and_writes_nothing(desk: Desk, store: ObjectStore, add: list[str]) -> None:
    result = desk.type(*add)
    assert (result.exit_code, result.stderr) == (0, "")
    assert set(store.counts()) == {"GET"}


def test_doctor_reads_and_writes_only_when_it_is_asked_to(desk: Desk, store: ObjectStore, add: list[str]) -> None:
    assert desk.type(*add).exit_code == 0
    immutable_files.clear()
    store.counts()
    assert "the files of served.db.t can be read" in " ".join(desk.type("doctor").stdout.split())
    assert set(store.counts()) == {"GET"}
    desk.type("doctor", "--write-check")
    assert {"PUT", "DELETE"} <= set(store.counts())
    store.fault = lambda method, key: _denied(method, key) if method == "PUT" else None
    result = desk.type("doctor", "--write-check")
    assert result.exit_code == 1
    assert "AccessDenied" in desk.type("doctor", "--write-check", "--json").stdout


def test_a_refresh_that_could_not_read_a_table_ends_with_1(desk: Desk, store: ObjectStore, add: list[str]) -> None:
    assert desk.type(*add).exit_code == 0
    assert desk.type("table", "list", "--refresh").exit_code == 0
    immutable_files.clear()
    store.fault = _denied
    result = desk.type("table", "list", "--refresh", "--json")
    assert result.exit_code == 1
    assert "no permission" in result.stderr
    assert '"WAITING"' in result.stdout
