"""The demo on an empty folder: real Dagster, real Spark, real tables."""

from __future__ import annotations

import re
import socket
import subprocess
from pathlib import Path

import pytest

from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.scenarios.demos import DEMO, environment, log_of, processes_of, run_once

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(1500)]


# In CI `test_demo_again` ends with the same, on what other demos left.
@pytest.mark.long
def test_once_compacts_a_backlog_by_sensors_and_keeps_every_row(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = run_once(folder, COMPACTION_DEMO_BACKLOG_FILES="300")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{log_of(folder)}"
    assert done.stdout.count("every one as in the change log") == 4
    assert processes_of(folder) == []


def test_optimizers_compact_a_backlog_beside_the_sensors_and_keep_every_row(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = run_once(folder, OPTIMIZERS="2", SERVER_PORT=str(free_port()), COMPACTION_DEMO_BACKLOG_FILES="300")
    logs = "\n".join(log_of(folder, name) for name in ("dagster", "serve", "optimizer-1", "optimizer-2"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    assert done.stdout.count("every one as in the change log") == 4
    merged = re.search(r"(\d+) of them hold only what optimizers merged", done.stdout)
    assert merged is not None, done.stdout
    assert int(merged[1]) >= 1, done.stdout
    assert processes_of(folder) == []


def test_a_port_in_use_is_refused_in_one_sentence_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        refused = subprocess.run(DEMO, env=environment(tmp_path / "demo", port), capture_output=True, text=True, timeout=600)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.count("\n") == 1
    assert f"port {port} is in use" in refused.stderr
    assert f"make demo PORT={port + 1}" in refused.stderr
    assert not (tmp_path / "demo").exists()
