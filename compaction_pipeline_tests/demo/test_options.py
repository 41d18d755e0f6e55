"""The options of the demo."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo.options import child_environment, read_options
from compaction_pipeline.demo.processes import check_port
from compaction_pipeline_tests.plain_names import TABLE_HEALTH


def test_without_any_choice_the_demo_is_live_on_port_3000_in_a_folder_of_its_own() -> None:
    options = read_options({})
    assert (options.port, options.once, options.root.name, options.root.is_absolute()) == (3000, False, ".demo", True)
    # make passes ONCE and PORT to the demo even when they are empty.
    assert read_options({"ONCE": "", "PORT": ""}) == options


@pytest.mark.parametrize(("text", "once"), [("1", True), ("yes", True), ("True", True), ("0", False), ("no", False), ("false", False)])
def test_once_is_on_for_a_text_that_means_yes(text: str, once: bool) -> None:
    assert read_options({"ONCE": text}).once is once


def test_once_is_refused_for_a_text_that_means_neither() -> None:
    with pytest.raises(ConfigError, match=r"ONCE is 'maybe' but must be 1 \(yes, true\) or 0 \(no, false\), e.g. ONCE=1"):
        read_options({"ONCE": "maybe"})


def test_a_file_is_no_folder_for_the_demo_and_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("mine")
    with pytest.raises(ConfigError, match=f"COMPACTION_DEMO_HOME is {file} but must be a folder, and that is a file: set it to another"):
        read_options({"COMPACTION_DEMO_HOME": str(file)})
    assert file.read_text() == "mine"


def test_optimizers_are_none_unless_somebody_asks_for_them() -> None:
    assert read_options({"OPTIMIZERS": ""}).optimizers == 0
    assert read_options({"OPTIMIZERS": "2"}).optimizers == 2
    with pytest.raises(ConfigError, match="OPTIMIZERS is 'two' but must be a whole number from 0 to 16"):
        read_options({"OPTIMIZERS": "two"})


@pytest.mark.parametrize("text", ["0", "65536", "-1", "three", "3000.5"])
def test_a_text_that_is_no_port_is_refused_by_name_and_rule(text: str) -> None:
    with pytest.raises(ConfigError, match=f"PORT is '{text}' but must be a whole number from 1 to 65535"):
        read_options({"PORT": text})


def test_a_port_in_use_is_one_clear_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"port {port} is in use .*make demo PORT={port + 1}"):
            check_port(port)
    check_port(port)


def test_no_setting_of_the_persons_own_tables_reaches_the_demo() -> None:
    options = read_options({})
    mine = {"COMPACTION_STATE_URL": "postgresql://prod", "COMPACTION_SPARK_REMOTE": "sc://prod", "DAGSTER_HOME": "/prod", "PATH": "/bin"}
    environment = child_environment(options, mine)
    assert "prod" not in " ".join(environment.values())
    assert environment["PATH"] == "/bin"
    assert environment["COMPACTION_HOME"] == str(options.home)
    assert environment["COMPACTION_SENSOR_INTERVAL_SECONDS"] == "5"


def test_the_page_to_look_at_first_is_that_of_the_asset(tmp_path: Path) -> None:
    options = read_options({"COMPACTION_DEMO_HOME": str(tmp_path), "PORT": "3001"})
    # No variable of the program reaches Dagster here, so its assets have no prefix.
    assert "COMPACTION_ASSET_PREFIX" not in child_environment(options, {"COMPACTION_ASSET_PREFIX": "ours"})
    assert options.health_page == f"http://127.0.0.1:3001/assets/{'/'.join(TABLE_HEALTH.path)}"


@pytest.mark.parametrize(("argument", "code", "says"), [("--help", 0, "PORT=3000"), ("ONCE=1", 2, "unrecognized arguments: ONCE=1")])
def test_arguments_start_no_demo(tmp_path: Path, argument: str, code: int, says: str) -> None:
    environment = {**os.environ, "COMPACTION_DEMO_HOME": str(tmp_path / "demo")}
    command = [sys.executable, "-m", "compaction_pipeline.demo", argument]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert found.returncode == code
    assert says in found.stdout + found.stderr
    assert not (tmp_path / "demo").exists()
