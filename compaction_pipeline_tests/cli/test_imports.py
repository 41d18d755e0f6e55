"""A command imports only what it needs, because some libraries take seconds to import."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from compaction_pipeline_tests.cli.conftest import Desk

_HEAVY = ("pyspark", "dagster", "pyiceberg", "pyarrow", "pandas", "duckdb", "numpy", "polars")
_DATABASE = ("sqlalchemy", "alembic", "pydantic_settings")
_WORKING = tuple(f"compaction_pipeline.{room}." for room in ("services", "storage", "iceberg", "spark", "defs", "file_io", "formats"))
"""Packages of the program that do the work. The help and the version need none of them."""
_PROGRAM = """
import json, sys
from compaction_pipeline.cli.main import app
try:
    app(json.loads(sys.argv[1]))
except SystemExit as ended:
    assert not ended.code, ended.code
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""


def imported(*arguments: str) -> set[str]:
    """The modules that a process has imported after this command."""
    command = [sys.executable, "-W", "ignore", "-c", _PROGRAM, json.dumps(arguments)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("compact", "--help"), ("catalog", "add", "--help")])
def test_help_and_version_import_neither_a_database_nor_a_table_library(arguments: tuple[str, ...]) -> None:
    modules = imported(*arguments)
    assert modules & {*_HEAVY, *_DATABASE, "requests", "tenacity", "rich.progress"} == set()
    assert [name for name in sorted(modules) if name.startswith(_WORKING)] == []


@pytest.mark.parametrize("arguments", [("status",), ("record", "list"), ("catalog", "list"), ("pause",)])
def test_a_command_that_only_reads_the_state_imports_no_table_library(desk: Desk, arguments: tuple[str, ...]) -> None:
    desk.table()
    desk.add_catalog()
    desk.type("table", "list", "--refresh")
    assert desk.type("compact", "lake.shop.orders").exit_code == 0
    modules = imported(*arguments)
    assert "sqlalchemy" in modules
    assert modules & {*_HEAVY, "alembic"} == set()


def test_no_command_that_looks_at_a_catalog_imports_spark_or_what_commits(desk: Desk) -> None:
    desk.table()
    desk.add_catalog()
    modules = imported("doctor")
    assert "pyiceberg" in modules
    assert modules & {"pyspark", "py4j", "dagster", "alembic", "compaction_pipeline.iceberg.commit"} == set()
