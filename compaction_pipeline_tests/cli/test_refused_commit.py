"""What the command line says and leaves when a REST catalog refuses a commit, or loses its answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compaction_pipeline_tests.cli.conftest import TABLE, Desk
from compaction_pipeline_tests.rest_catalog import RestServer, rest_server, status


@pytest.fixture
def server(desk: Desk) -> Iterator[RestServer]:
    with rest_server(desk.lake) as running:
        assert desk.type("catalog", "add", "lake", "-p", "type=rest", "-p", f"uri={running.uri}").exit_code == 0
        yield running


def metadata_files(desk: Desk) -> set[str]:
    return {path.name for path in (desk.folder / "warehouse").rglob("metadata/*.avro")}


def test_a_refused_commit_ends_with_1_and_the_catalog_s_answer(desk: Desk, server: RestServer) -> None:
    table = desk.table(files=12, buckets=(0,))
    before = metadata_files(desk)
    server.commits = [status(403)]
    answer = desk.json("compact", TABLE, code=1)
    assert "HTTP 403" in answer["reason"]
    assert "the test says 403" in answer["reason"]
    assert answer["committed"] == 0
    assert metadata_files(desk) == before
    for command in (["status"], ["table", "list"], ["table", "show", TABLE]):
        shown = desk.type(*command, COLUMNS="400")
        assert shown.exit_code == 0
        assert "the test says 403" in shown.stdout, command
    # The merged files are kept, and the next command commits them.
    again = desk.json("compact", TABLE)
    assert (again["committed"], again["files_after"]) == (1, 1)
    assert "the test says 403" not in desk.type("table", "list", COLUMNS="400").stdout
    assert desk.ids(table) == [number * 10 for number in range(12)]


def test_the_command_that_finds_a_lost_commit_reports_it(desk: Desk, server: RestServer) -> None:
    table = desk.table(files=12, buckets=(0,))
    server.commits = [status(503)]
    lost = desk.json("compact", TABLE, code=5)
    assert "503" in lost["reason"]
    found = desk.json("compact", TABLE)
    head = table.refresh().current_snapshot()
    assert head is not None
    assert (found["snapshot_after"], found["snapshot_before"]) == (head.snapshot_id, head.parent_snapshot_id)
    assert (found["files_before"], found["files_after"], found["committed"], found["reason_code"]) == (12, 1, 1, "PLANNED")
    assert desk.ids(table) == [number * 10 for number in range(12)]


def test_a_catalog_whose_database_is_read_only_is_named_so_and_merged_tasks_are_kept(desk: Desk) -> None:
    table = desk.table(files=12)
    uri = f"sqlite:///file:{desk.folder}/catalog.db?mode=ro&uri=true"
    desk.type("catalog", "add", "lake", "-p", "type=sql", "-p", f"uri={uri}", "-p", f"warehouse=file://{desk.folder}/warehouse")
    answer = desk.json("compact", TABLE, code=1)
    assert answer["committed"] == 0
    assert (
        "(attempt to write a readonly database): nothing was committed; let this user write the file that the catalog's 'uri' names"
        in answer["reason"]
    )
    assert len(desk.ids(table)) == 24
