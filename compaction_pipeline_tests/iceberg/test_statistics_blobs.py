"""A table whose statistics hold a blob that PyIceberg does not know can be used, whichever call is the first one of a process.

Calls run in other interpreters, because one import changes PyIceberg for a whole process. The calls after the same imports are children of
one interpreter that has only these imports, so each is the first call of its process.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table.statistics import BlobMetadata, StatisticsFile
from pyiceberg.types import LongType, NestedField

from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline_tests.rest_catalog import rest_server

KINDS = ("optimized-sequence", "base-optimized-time")
OF_PROGRAM = "from compaction_pipeline.iceberg.catalogs import load_catalog"
OF_DEMO = "from compaction_pipeline.demo import warehouse\nfrom pyiceberg.catalog import load_catalog"
BEFORE_PYICEBERG = "from compaction_pipeline.keyed import read_any_statistics\nfrom pyiceberg.catalog import load_catalog"
AFTER_PYICEBERG = (
    "import pyiceberg.catalog.rest\nfrom pyiceberg.catalog import load_catalog\nfrom compaction_pipeline.keyed import KeyedTable"
)
PLAIN = "from pyiceberg.catalog import load_catalog"

CALLS = {
    "load": "print(catalog.load_table('db.t').metadata.statistics[0].blob_metadata[0].type)",
    "refresh": "set_back(); t = catalog.load_table('db.t'); set_forth(); print(t.refresh().metadata.statistics[0].blob_metadata[0].type)",
    "commit": "set_back(); t = catalog.load_table('db.t'); set_forth(); t.transaction().set_properties(a='b').commit_transaction();"
    " print(t.metadata.statistics[0].blob_metadata[0].type)",
    "table_exists": "print('optimized-sequence' if catalog.table_exists('db.t') else 'missing')",
    "register": "print(catalog.register_table('db.again', NEWEST).metadata.statistics[0].blob_metadata[0].type)",
}


class House:
    """A SQL catalog with the table `db.t`. `before` is its metadata file without statistics, and `newest` the one with them."""

    def __init__(self, folder: Path) -> None:
        self.properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
        self.database = folder / "catalog.db"
        self.catalog = SqlCatalog("lake", **self.properties)
        self.catalog.create_namespace("db")
        table = self.catalog.create_table("db.t", Schema(NestedField(1, "id", LongType())))
        table.append(table.scan().to_arrow().slice(0, 0))
        self.before = table.metadata_location
        snapshot = table.current_snapshot()
        assert snapshot is not None
        blobs = [BlobMetadata(**{"type": kind, "snapshot-id": snapshot.snapshot_id, "sequence-number": 1, "fields": []}) for kind in KINDS]
        file = StatisticsFile(
            **{
                "snapshot-id": snapshot.snapshot_id,
                "statistics-path": f"{table.location()}/none.puffin",
                "file-size-in-bytes": 1,
                "file-footer-size-in-bytes": 1,
                "blob-metadata": blobs,
            }
        )
        with table.update_statistics() as update:
            update.set_statistics(file)
        self.newest = table.metadata_location

    def script(self, call: str, **properties: str) -> str:
        """One call on a catalog that is opened anew. The imports come before it."""
        script = f"""
            import sqlite3
            NEWEST = {self.newest!r}
            def point_to(location):
                with sqlite3.connect({str(self.database)!r}) as connection:
                    connection.execute("update iceberg_tables set metadata_location = ? where table_name = 't'", (location,))
            def set_back(): point_to({self.before!r})
            def set_forth(): point_to(NEWEST)
            catalog = load_catalog("lake", **{properties or {"type": "sql", **self.properties}!r})
            """
        return "\n".join([textwrap.dedent(script), *call.split("; ")])

    def kinds_in_newest_metadata(self) -> list[str]:
        with closing(sqlite3.connect(self.database)) as connection:
            ((location,),) = connection.execute("select metadata_location from iceberg_tables where table_name = 't'").fetchall()
        metadata = json.loads(Path(location.removeprefix("file://")).read_text())
        return [blob["type"] for blob in metadata["statistics"][0]["blob-metadata"]]


@dataclass(frozen=True)
class Done:
    printed: str
    error: str
    status: int


def run_each(imports: str, scripts: Sequence[str], folder: Path) -> list[Done]:
    """What became of each script. One new interpreter imports, and then has a child for each script."""
    lines = [imports, "import os, sys, traceback", f"for number, script in enumerate({list(scripts)!r}):", "    child = os.fork()"]
    lines += ["    if child == 0:", "        status = 1"]
    lines += [f"        sys.stdout = open(f'{folder}/{{number}}.out', 'w')", f"        sys.stderr = open(f'{folder}/{{number}}.err', 'w')"]
    lines += ["        try:", "            exec(script, globals())", "            status = 0", "        except BaseException:"]
    lines += ["            traceback.print_exc()", "        sys.stdout.flush()", "        sys.stderr.flush()", "        os._exit(status)"]
    lines += ["    _, ended = os.waitpid(child, 0)", "    print(os.waitstatus_to_exitcode(ended))"]
    run = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    statuses = [int(line) for line in run.stdout.split()]
    assert len(statuses) == len(scripts)
    return [
        Done((folder / f"{number}.out").read_text(), (folder / f"{number}.err").read_text(), status)
        for number, status in enumerate(statuses)
    ]


@pytest.fixture
def houses(tmp_path: Path) -> Iterator[list[House]]:
    """A house for each call."""
    folders = [tmp_path / str(number) for number in range(len(CALLS))]
    for folder in folders:
        folder.mkdir()
    houses = [House(folder) for folder in folders]
    yield houses
    for house in houses:
        house.catalog.close()


def test_pyiceberg_alone_still_refuses_such_a_table(houses: list[House], tmp_path: Path) -> None:
    """If this fails, PyIceberg has learned to read any statistics, and `statistics_blobs.py` can go."""
    [done] = run_each(PLAIN, [houses[0].script(CALLS["table_exists"])], tmp_path)
    assert done.status != 0
    assert "literal_error" in done.error


def check_each(houses: list[House], done: list[Done]) -> None:
    for name, house, each in zip(CALLS, houses, done, strict=True):
        assert (each.printed, each.status) == ("optimized-sequence\n", 0), (name, each.error)
        assert house.kinds_in_newest_metadata() == list(KINDS), name


def test_any_call_may_come_first_on_a_sql_catalog(houses: list[House], tmp_path: Path) -> None:
    scripts = [house.script(call) for house, call in zip(houses, CALLS.values(), strict=True)]
    check_each(houses, run_each(OF_PROGRAM, scripts, tmp_path))


def test_any_call_may_come_first_on_a_rest_catalog(houses: list[House], tmp_path: Path) -> None:
    with ExitStack() as open_servers:
        uris = [open_servers.enter_context(rest_server(house.catalog)).uri for house in houses]
        scripts = [house.script(call, type="rest", uri=uri) for house, call, uri in zip(houses, CALLS.values(), uris, strict=True)]
        check_each(houses, run_each(AFTER_PYICEBERG, scripts, tmp_path))


@pytest.mark.parametrize("imports", [OF_DEMO, BEFORE_PYICEBERG, AFTER_PYICEBERG], ids=["demo", "before", "after"])
def test_one_import_is_enough_wherever_it_stands(houses: list[House], tmp_path: Path, imports: str) -> None:
    [done] = run_each(imports, [houses[0].script(CALLS["table_exists"])], tmp_path)
    assert (done.printed, done.status) == ("optimized-sequence\n", 0), done.error


def test_a_program_of_somebody_else_imports_neither_spark_nor_dagster_nor_a_server() -> None:
    script = """
        import sys
        for name in ("pyspark", "dagster", "fastapi", "uvicorn", "alembic", "typer"):
            sys.modules[name] = None
        from compaction_pipeline.keyed import read_any_statistics
        read_any_statistics()
        print(sorted(name for name in sys.modules if name.startswith("compaction_pipeline.")))
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("compaction_pipeline") == 4, done.stdout


def test_no_model_of_pyiceberg_is_left_that_refuses_a_blob() -> None:
    script = """
        import importlib, pkgutil
        import pyiceberg
        from compaction_pipeline.keyed import read_any_statistics
        from pydantic import BaseModel

        for module in pkgutil.walk_packages(pyiceberg.__path__, "pyiceberg."):
            try:
                importlib.import_module(module.name)
            except ImportError:
                pass  # It needs an extra of PyIceberg.

        def below(kind):
            for each in kind.__subclasses__():
                yield each
                yield from below(each)

        models = {each for each in below(BaseModel) if each.__module__.startswith("pyiceberg.")}
        strict = {each for each in models if "apache-datasketches-theta-v1" in repr(each.__pydantic_core_schema__)}
        # pydantic makes this base of TableMetadataWrapper by itself, and nothing is read with it.
        print(len(models) > 100, sorted(each.__name__.split("[")[0] for each in strict))
        """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.returncode) == ("True ['IcebergRootModel']\n", 0), done.stderr
