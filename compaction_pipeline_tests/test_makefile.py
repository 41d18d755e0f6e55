"""`make test` runs every stage, and says which ones failed. `make check` refuses long subjects of new commits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compaction_pipeline_tests.stages import PLACES

ROOT = Path(__file__).parents[1]
STAGES = ["lint", *(stage for stage in PLACES if stage != "long")]

# This script replaces every program of the virtual environment. It fails when its arguments contain a text of FAILING.
_PROGRAM = """#!/bin/sh
for text in $FAILING; do case "$*" in *"$text"*) exit 1 ;; esac; done
"""


def make_test(folder: Path, failing: str) -> subprocess.CompletedProcess[str]:
    """Run `make test` in a folder whose virtual environment has programs that do nothing."""
    programs = folder / "venv" / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "ruff", "mypy", "lint-imports", "mkdocs"):
        (programs / name).write_text(_PROGRAM)
        (programs / name).chmod(0o755)
    for name in ("Makefile", "uv.lock", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "venv" / ".set-up").touch()
    # This test may itself run below `make`. The variables of that `make` must not reach this one.
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    return subprocess.run(
        ["make", "test", "VENV=venv"], cwd=folder, env={**environment, "FAILING": failing}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("failing", "named"),
    [
        ("check", ["lint"]),
        ("spark", ["test-spark"]),
        ("--stage", ["test-fast", "test-spark", "test-postgres", "test-interop", "test-scenario", "test-browser"]),
    ],
)
def test_a_failing_stage_is_named_and_later_stages_still_run(tmp_path: Path, failing: str, named: list[str]) -> None:
    done = make_test(tmp_path, failing)
    assert done.returncode != 0
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("== ")] == STAGES
    assert f"make test: these stages failed: {' '.join(named)}\n" in done.stderr


def test_every_stage_that_passes_is_a_success(tmp_path: Path) -> None:
    done = make_test(tmp_path, "nothing-is-called-so")
    assert done.returncode == 0, done.stderr
    assert "every stage passed" in done.stdout


def subjects_checked(repository: Path, *base: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / ".ci" / "commit_subjects"), *base]
    return subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)


@pytest.fixture
def commit(tmp_path: Path) -> Callable[[str], None]:
    def git(*words: str) -> None:
        names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        subprocess.run(["git", *names, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-b", "main")
    return lambda subject: git("commit", "--allow-empty", "-m", subject)


def test_a_subject_of_72_characters_is_the_longest(tmp_path: Path, commit: Callable[[str], None]) -> None:
    commit("é" * 72)
    assert subjects_checked(tmp_path).returncode == 0
    commit("é" * 73)
    refused = subjects_checked(tmp_path)
    assert refused.returncode == 1
    assert "its subject has 73 characters" in refused.stderr


def test_only_commits_since_the_base_are_new(tmp_path: Path, commit: Callable[[str], None]) -> None:
    commit("x" * 73)
    commit("short")
    commit("short again")
    assert subjects_checked(tmp_path).returncode == 0
    assert subjects_checked(tmp_path, "HEAD~1").returncode == 0
    commit("y" * 73)
    commit("short at last")
    assert subjects_checked(tmp_path).returncode == 0
    assert subjects_checked(tmp_path, "HEAD~3").returncode == 1


def test_make_check_looks_at_the_subjects() -> None:
    assert "commit_subjects $(BASE)" in (ROOT / "Makefile").read_text()
