"""Runs the demo as `make demo` does, but without make: real Dagster, real Spark, real tables."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.scenario, pytest.mark.timeout(1500)]

_DEMO = [sys.executable, "-m", "compaction_pipeline.demo"]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(folder: Path, port: int, **more: str) -> dict[str, str]:
    return {**os.environ, "COMPACTION_DEMO_HOME": str(folder), "PORT": str(port), "PYTHONUNBUFFERED": "1", **more}


def _processes_of(folder: Path) -> list[str]:
    """The command lines of all processes that were started for this demo."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() != psutil.STATUS_ZOMBIE and str(folder) in process.environ().get("COMPACTION_DEMO_HOME", ""):
                found.append(" ".join(process.cmdline()))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def test_once_compacts_a_backlog_by_sensors_and_keeps_every_row(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    done = subprocess.run(_DEMO, env=_environment(folder, _free_port(), ONCE="1"), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{_log(folder)}"
    assert done.stdout.count("every one as in the change log") == 4
    assert _processes_of(folder) == []


def test_optimizers_compact_a_backlog_beside_the_sensors_and_keep_every_row(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    environment = _environment(
        folder, _free_port(), ONCE="1", OPTIMIZERS="2", SERVER_PORT=str(_free_port()), COMPACTION_DEMO_BACKLOG_FILES="600"
    )
    done = subprocess.run(_DEMO, env=environment, capture_output=True, text=True, timeout=1200)
    logs = "\n".join(_log(folder, name) for name in ("dagster", "serve", "optimizer-1", "optimizer-2"))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    assert done.stdout.count("every one as in the change log") == 4
    merged = re.search(r"(\d+) of them hold only what optimizers merged", done.stdout)
    assert merged is not None, done.stdout
    assert int(merged[1]) >= 1, done.stdout
    assert _processes_of(folder) == []


@pytest.fixture
def live_demo(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    folder, port = tmp_path / "demo", _free_port()
    demo = subprocess.Popen(
        _DEMO, env=_environment(folder, port), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    # A timer ends the demo, so that a test never waits for ever for a line.
    watchdog = threading.Timer(900, demo.kill)
    watchdog.start()
    yield demo, folder, port
    watchdog.cancel()
    if demo.poll() is None:
        demo.terminate()
        demo.wait(300)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_live_demo_shows_its_tables_and_leaves_no_process_when_it_is_ended(
    live_demo: tuple[subprocess.Popen[str], Path, int], number: signal.Signals
) -> None:
    demo, folder, port = live_demo
    assert demo.stdout is not None
    printed = []
    for line in demo.stdout:
        printed.append(line)
        if f"Open http://127.0.0.1:{port}" in line:
            break
    assert demo.poll() is None, "".join(printed) + _log(folder)
    assert any(line.startswith("orders") for line in printed)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=120) as answer:
        assert answer.status == 200
    assert any("compaction_pipeline.demo.writer orders" in process for process in _processes_of(folder))
    demo.send_signal(number)
    rest = demo.communicate(timeout=600)[0]
    assert demo.returncode == 0, rest
    assert "every process of the demo has ended" in rest
    assert _processes_of(folder) == []


def test_a_port_in_use_is_refused_in_one_sentence_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = int(taken.getsockname()[1])
        refused = subprocess.run(_DEMO, env=_environment(tmp_path / "demo", port), capture_output=True, text=True, timeout=600)
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert f"port {port} is in use" in refused.stderr
    assert not (tmp_path / "demo").exists()


def _log(folder: Path, name: str = "dagster") -> str:
    log = folder / "logs" / f"{name}.log"
    return log.read_text(errors="replace")[-5_000:] if log.exists() else f"no log of {name}"
