"""Merges on the Spark session of a resource `pyspark` that a project gave: opened once, never changed and never stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Thread
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.given_session import GivenSession
from compaction_pipeline.spark.java import find_java
from compaction_pipeline.spark.session_kind import application_id_of
from compaction_pipeline_tests.merging.files import Table
from compaction_pipeline_tests.spark.endless_io import endless_io
from compaction_pipeline_tests.spark.given import seen

_CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Context:
    """A context on a master. It notes what is done to it."""

    pythonExec = sys.executable
    applicationId = "app-7"
    defaultParallelism = 5

    def __init__(self, master: str) -> None:
        self.master = master
        self.done: list[str] = []
        self.stopped = False
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.stopped))

    def addPyFile(self, path: str) -> None:
        self.done.append(f"addPyFile {Path(path).name}")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"somebody asks the context of a project for {name}")


class Session:
    """A classic session on a master."""

    def __init__(self, master: str = "local[2]") -> None:
        self.sparkContext = Context(master)

    range = "a method of sessions"

    def stop(self) -> None:
        raise AssertionError("the session of a project is never stopped")


def test_the_session_is_opened_at_the_first_merge_and_once_for_all_threads(tmp_path: Path) -> None:
    opened: list[Session] = []
    together = Barrier(8)

    def open_one() -> Session:
        opened.append(Session())
        return opened[-1]

    given = GivenSession(open_one, tmp_path)
    assert (given.running(), opened) == (None, [])

    def ask(_: int) -> Any:
        together.wait()
        return given.session()

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(ask, range(8))) == set(opened)
    assert len(opened) == 1
    SparkMergeEngine(given).close()
    assert (given.running(), given.slots()) == (opened[0], 5)


@pytest.mark.parametrize(
    ("master", "done"), [("local[2]", []), ("local", []), ("spark://there:7077", ["addPyFile compaction_pipeline.zip"])]
)
def test_the_package_is_sent_once_to_other_machines_and_nothing_else_is_done(master: str, done: list[str], tmp_path: Path) -> None:
    session = Session(master)
    for _ in range(2):
        # Two runs of one process may share a session.
        SparkMergeEngine(GivenSession(lambda: session, tmp_path)).ready()
    assert session.sparkContext.done == done


def test_a_session_that_somebody_stopped_fails_with_a_sentence_and_no_other_is_opened(tmp_path: Path) -> None:
    session = Session()
    given = GivenSession(lambda: session, tmp_path)
    given.session()
    session.sparkContext.stopped = True
    with pytest.raises(StorageUnavailable, match="Spark session of the resource 'pyspark' was stopped"):
        given.session()


def test_only_a_merge_asks_for_the_application_and_whoever_reads_it_never_waits_for_spark(tmp_path: Path) -> None:
    session, asked = Session(), list[str]()

    class Silent(Context):
        @property
        def applicationId(self) -> str:  # type: ignore[override]
            asked.append("id")
            if len(asked) == 2:
                raise ConnectionError("the server does not answer")
            return "app-8"

    session.sparkContext = Silent("local[2]")
    given = GivenSession(lambda: session, tmp_path)
    given.session()
    # The log names it when the session is opened. Heartbeats read it: if they waited for Spark, an optimizer would lose its tasks.
    assert (application_id_of(session), len(asked)) == ("", 2)
    given.session()
    given.session()
    assert (application_id_of(session), len(asked)) == ("app-8", 3)


def test_a_resource_without_a_session_is_named_with_what_to_do(tmp_path: Path) -> None:
    def fails() -> Any:
        raise RuntimeError("Java gateway process exited\nbefore sending its port number")

    with pytest.raises(StorageUnavailable, match=r"'pyspark' does not give a Spark session: Java gateway process exited. Correct the"):
        SparkMergeEngine(GivenSession(fails, tmp_path)).ready()
    with pytest.raises(ConfigError, match="'spark_session' of the resource 'pyspark' is NoneType but must be a session of PySpark"):
        SparkMergeEngine(GivenSession(lambda: None, tmp_path)).ready()


def test_workers_with_another_python_are_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = Session()
    session.sparkContext.pythonExec = "/usr/nowhere/python3"  # type: ignore[misc]
    GivenSession(lambda: session, tmp_path).session()
    assert "run /usr/nowhere/python3 (which is not on the PATH), not this interpreter" in caplog.text
    assert f"set PYSPARK_PYTHON={sys.executable}" in caplog.text
    assert session.sparkContext.pythonExec == "/usr/nowhere/python3"


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """The address of a server of Spark Connect."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false"]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *options, "--class", _CONNECT_SERVER, "spark-internal"]
    java = find_java(os.environ, tmp_path).path
    environment = {**os.environ, "JAVA_HOME": java, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path, start_new_session=True) as process:
        assert process.stderr is not None
        try:
            assert any("Spark Connect server started" in line for line in process.stderr), "the server did not start"
            Thread(target=process.stderr.read, daemon=True).start()
            yield f"sc://127.0.0.1:{port}"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.spark
def test_spark_connect_merges_cancels_and_lives_on_whether_it_was_given_or_is_ours(tmp_path: Path, connect_server: str) -> None:
    table = Table(tmp_path)
    for start in (0, 5):
        table.append([{"id": start + index, "name": "x"} for index in range(5)])
    task, layout = table.task(), table.layout()
    [here] = InProcessMergeEngine().merge([task.merge_input(layout)], {})
    began = tmp_path / "began"
    found = seen({"spark.remote": connect_server}, task, layout, tmp_path, endless_io(tmp_path, began), began)
    assert (found["error"], found["rows"], found["digest"]) == (None, here.rows_written, str(here.digest_written))
    assert found["canceled"] == "the merge was canceled"
    assert found["alive"]
    assert found["own"] == [None, str(here.digest_written)]
    assert found["slots"] == 16
    assert found["application"].startswith("Connect session ")
    assert found["application id"].startswith("local-")
