"""Merges on the session of a resource `pyspark`, in a process of its own: a process uses PySpark either as a client or as a driver.

`python -m compaction_pipeline_tests.spark.given CONFIG TASK HOME MODULE BEGAN` prints what it saw as JSON. CONFIG is the `spark_config` of
a LazyPySparkResource, MODULE a module whose FileIO never returns, and BEGAN the file that tells that it was called.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from compaction_pipeline.core.ids import AttemptId
from compaction_pipeline.core.queue.task import CompactionTask
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.spark.engine import SparkMergeEngine
from compaction_pipeline.spark.given_session import GivenSession
from compaction_pipeline.spark.java import find_java
from compaction_pipeline.spark.session import SparkSessions, SparkSettings
from compaction_pipeline.spark.session_kind import application_id_of, application_of, is_connect
from compaction_pipeline_tests.planted import found_in, planted

_CHECKOUT = Path(__file__).parents[2]
SECRETS = (planted("SecKey"), planted("Token"))
_FILE_IO = {"s3.access-key-id": "AKIA", "s3.secret-access-key": SECRETS[0], "s3.session-token": SECRETS[1]}
"""All merges here get it. Their tables have local files, so nobody is asked by it."""


def seen(config: dict[str, str], task: CompactionTask, layout: TableLayout, folder: Path, endless: Path, began: Path) -> dict[str, Any]:
    """What a process sees that merges on the session of a LazyPySparkResource with this configuration."""
    given = folder / "task.pickle"
    given.write_bytes(pickle.dumps((task, layout)))
    environment = {**os.environ, "JAVA_HOME": find_java(os.environ, folder).path, "PYSPARK_PYTHON": sys.executable}
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    arguments = [json.dumps(config), str(given), str(folder), str(endless), str(began)]
    child = subprocess.run(
        [sys.executable, "-m", __name__, *arguments], capture_output=True, text=True, timeout=300, env=environment, cwd=_CHECKOUT
    )
    assert child.returncode == 0, child.stderr
    assert found_in(child.stdout + child.stderr, SECRETS) == set()
    return dict(json.loads(child.stdout.splitlines()[-1]))


def _main(config: str, given: str, home: str, endless: str, began: str) -> dict[str, Any]:
    from dagster_pyspark import LazyPySparkResource

    task, layout = pickle.loads(Path(given).read_bytes())
    resource = LazyPySparkResource(spark_config=json.loads(config))
    sessions = GivenSession(lambda: resource.spark_session, Path(home))
    engine = SparkMergeEngine(sessions)
    engine.ready()
    session = resource.spark_session
    if is_connect(session):
        session.addArtifacts(endless, pyfile=True)
    else:
        session.sparkContext.addPyFile(endless)
    [result] = engine.merge([task.merge_input(layout)], _FILE_IO)
    stuck = replace(task, attempt_id=AttemptId("stuck"))
    with ThreadPoolExecutor(1) as slot:
        merge = slot.submit(lambda: list(engine.merge([stuck.merge_input(layout)], {**_FILE_IO, "py-io-impl": "endless_io.Endless"})))
        while not Path(began).exists():
            assert not merge.done(), merge.result()
        engine.cancel(AttemptId("another"))
        assert not merge.done()
        engine.cancel(AttemptId("stuck"))
        [ended] = merge.result(timeout=300)
    engine.close()
    found: dict[str, Any] = {
        "error": result.error,
        "rows": result.rows_written,
        "digest": str(result.digest_written),
        "canceled": ended.error,
        "slots": sessions.slots(),
        "application": application_of(sessions.session()),
        "application id": application_id_of(session),
        "alive": session.range(3).count() == 3,
    }
    if is_connect(session):
        own = _merged_on_own(resource.spark_config["spark.remote"], task, layout, home)
        found |= {"own": [own.error, str(own.digest_written)], "alive": session.range(3).count() == 3}
    return found


def _merged_on_own(remote: str, task: CompactionTask, layout: TableLayout, home: str) -> MergeResult:
    """The result on a session that the settings name, on the same server. It is stopped afterwards, and no other session is."""
    sessions = SparkSessions(SparkSettings(remote=remote, home=home))
    try:
        return next(SparkMergeEngine(sessions).merge([task.merge_input(layout)], _FILE_IO))
    finally:
        sessions.stop()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_main(*sys.argv[1:])) + "\n")
