"""Reads tables with DuckDB's reader of Iceberg tables, which shares no code with the other readers. It runs in a process of its own.

That process imports DuckDB and its extensions from the folder of `peers`, before all other packages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from compaction_pipeline_tests.interop.peers import duckdb_packages
from compaction_pipeline_tests.reference_reader import local_path

_CHILD = """
import glob, json, os, sys
import duckdb
connection = duckdb.connect()
connection.execute("SET timezone = 'UTC'")
# A query that takes some seconds would draw a bar between the answers.
connection.execute("SET enable_progress_bar = false")
for name in ("avro", "httpfs", "iceberg"):
    # DuckDB checks the signature of what it loads.
    (extension,) = glob.glob(os.path.join(sys.argv[1], f"duckdb_extension_{name}", "extensions", "*", f"{name}.duckdb_extension"))
    connection.execute(f"LOAD '{extension}'")
for location in sys.argv[2:]:
    rows = connection.execute(f"SELECT {{columns}} FROM iceberg_scan('{location}')".format(columns="COLUMNS(*)::VARCHAR")).fetchall()
    print(json.dumps(rows))
"""


def duckdb_rows(*tables: Any) -> list[list[tuple[str | None, ...]]]:
    """The rows of each PyIceberg table as DuckDB reads them: every value as text, columns in the table's order."""
    packages = duckdb_packages()
    locations = [local_path(table.metadata_location) for table in tables]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(packages), *locations],
        env={**os.environ, "PYTHONPATH": str(packages)},
        cwd=packages,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [[tuple(row) for row in json.loads(line)] for line in done.stdout.splitlines()]
