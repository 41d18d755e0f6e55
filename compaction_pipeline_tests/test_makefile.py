"""What the Makefile promises of `make test`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAGES = ["lint", "fast", "spark", "postgres", "interop", "scenario", "browser"]

# Stands for every program of the virtual environment: it fails where its arguments hold a text of FAILING.
_PROGRAM = """#!/bin/sh
for text in $FAILING; do case "$*" in *"$text"*) exit 1 ;; esac; done
"""


def make_test(folder: Path, failing: str) -> subprocess.CompletedProcess[str]:
    """`make test` with an environment whose programs do nothing."""
    programs = folder / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "ruff", "mypy", "lint-imports", "mkdocs"):
        (programs / name).write_text(_PROGRAM)
        (programs / name).chmod(0o755)
    for name in ("Makefile", "uv.lock", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "venv" / ".set-up").touch()
    # What the `make` above this test, if any, told its children is not meant for this one.
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", "test", "VENV=venv"], cwd=folder, env={**environment, "FAILING": failing}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("failing", "named"),
    [
        ("check", ["lint"]),
        ("spark", ["test-fast", "test-spark"]),
        ("browser", ["test-fast", "test-spark", "test-postgres", "test-interop", "test-scenario", "test-browser"]),
    ],
)
def test_a_stage_that_fails_hides_none_behind_it_and_is_named(tmp_path: Path, failing: str, named: list[str]) -> None:
    done = make_test(tmp_path, failing)
    assert done.returncode != 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("== ")] == STAGES
    assert f"make test: these stages failed: {' '.join(named)}\n" in done.stderr


def test_every_stage_that_passes_is_a_success(tmp_path: Path) -> None:
    done = make_test(tmp_path, "nothing-is-called-so")
    assert done.returncode == 0, done.stderr
    assert "every stage passed" in done.stdout
