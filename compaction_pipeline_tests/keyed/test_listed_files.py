"""The files of keyed tables as people see them: those of both stores, and where each delete file may hide rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from compaction_pipeline.api.app import http_app
from compaction_pipeline.cli.main import app as command_line
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.insight.listed_files import MOST_HIDDEN_PATHS, Hidden, Store, listed_keyed
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.keyed_files import KeyedFiles, TransactionSpan
from compaction_pipeline.core.tables.keyed.optimized_sequence import OptimizedSequences, numbers_of_blob, sequences_by_spec
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline_tests.keyed.program import MAJOR, TABLE, Program
from compaction_pipeline_tests.keyed.written import row


def live(node: int, kind: str, transaction: int, sequence: int = 0, rows: int = 10, number: int = 1) -> LiveFile:
    path = f"/d/{node}-{kind}-{transaction}-00000-0-1-{number:05d}.parquet"
    return LiveFile(path, FileContent.DATA, 0, (), 100, rows, sequence or transaction)


def hidden(
    base: list[LiveFile], changes: list[LiveFile], merged: int = 0, spans: dict[str, TransactionSpan] | None = None
) -> dict[str, Hidden]:
    sequences = sequences_by_spec(numbers_of_blob(json.dumps({"": merged}).encode()), {0: ()}, 0) if merged else OptimizedSequences()
    listed = listed_keyed(KeyedFiles(tuple(base), tuple(changes), sequences, 1, spans or {}))
    return {each.file.path: each.hides for each in listed if each.hides is not None}


def test_a_delete_file_hides_rows_that_come_before_it_in_related_nodes() -> None:
    base = [live(4, "B", 3, rows=100), live(4, "B", 5, rows=200, number=2), live(5, "B", 1)]
    changes = [live(4, "I", 5, rows=7), live(4, "I", 6, rows=8), live(8, "I", 2, rows=9), live(4, "ED", 5, rows=3)]
    # Rows of the base store come after the deletes of their own transaction; an insert of the same one may come before or after.
    [(path, found)] = hidden(base, changes).items()
    assert path == changes[3].path
    assert (found.files, found.rows) == (3, 116)
    assert set(found.paths) == {base[0].path, changes[0].path, changes[2].path}


def test_merged_changes_hide_nothing_and_are_not_hidden() -> None:
    changes = [live(4, "I", 1), live(4, "ED", 2), live(4, "I", 3), live(4, "ED", 4)]
    found = hidden([], changes, merged=2)
    assert list(found) == [changes[3].path]
    assert found[changes[3].path].paths == (changes[2].path,)


def test_a_file_of_several_transactions_counts_by_its_bounds() -> None:
    changes = [live(4, "I", 0, sequence=9), live(4, "ED", 0, sequence=9), live(4, "ED", 1)]
    spans = {changes[0].path: TransactionSpan(2, 9), changes[1].path: TransactionSpan(1, 2)}
    found = hidden([], changes, spans=spans)
    assert found[changes[1].path].files == 1
    assert found[changes[2].path] == Hidden(0, 0, ())


def test_only_the_first_paths_are_named() -> None:
    inserts = [live(4, "I", number) for number in range(1, 31)]
    [found] = hidden([], [*inserts, live(4, "ED", 31)]).values()
    assert (found.files, found.rows, len(found.paths)) == (30, 300, MOST_HIDDEN_PATHS)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    program = Program(tmp_path, buckets=1)
    program.upsert(row(1, "a"), row(2, "b"))
    program.refresh()
    program.services.compact_tables.compact(TABLE, MAJOR)
    program.upsert(row(3, "c"))
    program.delete(1)
    program.refresh()
    return program


def test_the_files_of_a_node_are_those_of_both_stores(program: Program) -> None:
    files = program.services.read_files.read(TABLE)
    [base] = [each for each in files if each.store is Store.BASE]
    merged, insert, delete = (each for each in files if each.store is Store.CHANGE)
    assert (base.kind, base.transaction, base.hides) == ("rows", 1, None)
    assert (merged.kind, merged.merged, insert.kind, insert.merged) == ("inserts", True, "inserts", False)
    assert delete.hides is not None
    assert set(delete.hides.paths) == {base.file.path, insert.file.path}
    [key] = program.services.read_tables.nodes(TABLE)
    assert program.services.read_files.read(TABLE, program.services.read_tables.nodes(TABLE)[key]) == files
    assert program.services.read_files.read(TABLE, TableNode(7)) == ()


def test_the_route_and_the_command_list_them(program: Program, tmp_path: Path) -> None:
    [key] = program.services.read_tables.nodes(TABLE)
    token = program.services.keep_tokens.issue(Role.READER, "r").text
    with TestClient(http_app(program.services)) as client:

        def ask(node: str, query: str = "") -> tuple[int, dict[str, object]]:
            answer = client.get(f"/api/v1/tables/{TABLE}/nodes/{node}/files{query}", headers={"Authorization": f"Bearer {token}"})
            return answer.status_code, answer.json()

        status, body = ask(key, "?limit=2")
        assert (status, body["total"]) == (200, 4)
        assert isinstance(body["files"], list)
        assert [file["store"] for file in body["files"]] == ["BASE", "CHANGE"]
        assert ask("nowhere")[0] == 404
        assert client.get(f"/api/v1/tables/{TABLE}/nodes/{key}/files").status_code == 401
    environment = {"COMPACTION_HOME": str(tmp_path / "home"), "COLUMNS": "300"}
    shown = CliRunner().invoke(command_line, ["table", "show", str(TABLE)], env=environment)
    assert "may hide rows in" in shown.output
    assert "2 files (3 rows)" in shown.output
    assert "it is merged, readers skip it" in shown.output
    value = json.loads(CliRunner().invoke(command_line, ["table", "show", str(TABLE), "--json"], env=environment).output)
    assert [file["store"] for file in value["files"]] == ["BASE", "CHANGE", "CHANGE", "CHANGE"]
    assert value["files"][3]["hides"]["rows"] == 3
