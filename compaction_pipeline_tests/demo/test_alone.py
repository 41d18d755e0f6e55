"""Only one demo runs in a folder. Two demos would each compare their tables with the change log of both."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo import program
from compaction_pipeline.demo.options import DemoOptions, child_environment, read_options
from compaction_pipeline.demo.processes import Processes, Stopped
from compaction_pipeline.demo.program import alone, answered


def test_a_second_demo_in_the_same_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    options = DemoOptions(tmp_path)
    with alone(options), pytest.raises(ConfigError, match=r"another demo runs in .*COMPACTION_DEMO_HOME"), alone(options):
        pass
    with alone(options):
        pass


_LEAVES_A_GRANDCHILD = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
"""


def test_a_demo_is_refused_while_a_process_of_a_killed_one_runs(tmp_path: Path) -> None:
    options = DemoOptions(tmp_path)
    with _leftover(options) as left:
        refusal = pytest.raises(ConfigError, match=rf"processes that it started still run: end them with `kill {left}`")
        with refusal, alone(options, grace_seconds=0):
            pass
    with alone(options):
        pass


@pytest.mark.usefixtures("own_environment")
def test_what_a_killed_demo_has_left_is_named_rather_than_its_port(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        options = _options(tmp_path, held.getsockname()[1])
        options.make_folders()
        with _leftover(options) as left:
            assert answered(lambda: options, grace_seconds=0) == 2
            assert f"end them with `kill {left}`" in capsys.readouterr().err
        assert answered(lambda: options, grace_seconds=0) == 2
        assert f"port {options.port} is in use" in capsys.readouterr().err


@contextmanager
def _leftover(options: DemoOptions) -> Iterator[int]:
    """The process id of a process whose demo has ended."""
    with Processes() as processes:
        child = processes.start(
            "child", [sys.executable, "-c", _LEAVES_A_GRANDCHILD], child_environment(options), options.root, options.root / "log"
        )
        while child.exit_code is None:
            child.look()
        (left,) = child.look()
        yield left.pid


def _options(home: Path, port: int) -> DemoOptions:
    return read_options({"COMPACTION_DEMO_HOME": str(home), "PORT": str(port)})


@pytest.fixture
def own_environment() -> Iterator[None]:
    """The demo clears the environment of its process."""
    with mock.patch.dict(os.environ):
        yield


@pytest.mark.usefixtures("own_environment")
@pytest.mark.parametrize(
    ("damaged", "says", "to_do"),
    [
        ("a file", "COMPACTION_DEMO_HOME is {} but must be a folder, and that is a file", "set it to another path"),
        ("a damaged catalog", "the demo cannot work in {}", "make demo-clean"),
    ],
)
def test_a_folder_that_no_demo_can_work_in_is_refused_in_one_sentence(
    damaged: str, says: str, to_do: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    if damaged == "a file":
        home.touch()
    else:
        home.mkdir()
        (home / "catalog.db").write_text("this is no database, whatever its name says")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert answered(lambda: _options(home, port), grace_seconds=0) == 2
    refused = capsys.readouterr().err
    assert refused.count("\n") == 1, refused
    assert says.format(home) in refused
    assert to_do in refused


@pytest.mark.usefixtures("own_environment")
@pytest.mark.parametrize(("once", "code"), [(True, 1), (False, 0)])
def test_a_comparison_that_is_ended_has_failed_and_a_live_demo_that_is_ended_has_not(
    once: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ended = mock.Mock(side_effect=Stopped("SIGTERM"))
    monkeypatch.setattr(program, "run_once" if once else "run_live", ended)
    options = read_options({"COMPACTION_DEMO_HOME": str(tmp_path), "PORT": str(port), "ONCE": "1" if once else ""})
    assert answered(lambda: options, grace_seconds=0) == code
    assert ended.call_count == 1
    assert capsys.readouterr().out == "\nSIGTERM: every process of the demo has ended.\n"


_ENDED_WHILE_IT_IMPORTS = """
import os, signal, sys
from compaction_pipeline.demo.__main__ import main

class Interrupts:
    def find_spec(self, name, *_):
        if name == "compaction_pipeline.demo.program":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupts())
sys.exit(main())
"""


def test_a_demo_that_is_ended_while_it_imports_says_so_in_a_sentence() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "ONCE"}
    ended = subprocess.run([sys.executable, "-c", _ENDED_WHILE_IT_IMPORTS], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "\nSIGINT: the demo has started nothing yet.\n", "")
