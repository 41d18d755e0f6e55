"""The call of spark-submit that runs an optimizer on a cluster.

Spark's properties go through a file that only its owner may read, because they may be secrets and every user of a host sees the arguments
of its processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from compaction_pipeline.containers.processes import properties_file
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.container import DEPLOY_MODE, MASTER, Container

_PROGRAM = "from compaction_pipeline.cli.main import run\n\nrun()\n"


def submit_command(
    container: Container, resource_id: str, arguments: Sequence[str], properties: Mapping[str, str], folder: Path
) -> list[str]:
    """Write the files that spark-submit reads into `folder`, and return its command line.

    The optimizer is a Python program of one line, so the package must be installed where the driver runs. spark-submit stays for as long
    as the application runs. Raises ConfigError for a property that Spark cannot read, and OSError.
    """
    program, file = folder / "optimizer_program.py", properties_file(folder, resource_id)
    program.write_text(_PROGRAM)
    text = "".join(_line(key, value) for key, value in sorted(properties.items()))
    with os.fdopen(os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as written:
        written.write(text)
    return [
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", container.properties[MASTER], "--deploy-mode", container.properties.get(DEPLOY_MODE, "client")),
        *("--name", f"compaction-pipeline {resource_id}", "--properties-file", str(file), "--load-spark-defaults"),
        str(program),
        *arguments,
    ]


def spark_home() -> Path:
    """The folder of PySpark, with its programs and jars. Raises ConfigError when it is not installed."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise ConfigError("PySpark is not installed, so spark-submit is missing; install compaction-pipeline with its dependencies")
    return Path(found.origin).parent


def _line(key: str, value: str) -> str:
    """A line of a file of Java properties."""
    if not key.isascii() or any(letter in key for letter in " =:#!\\\t\r\n"):
        raise ConfigError(f"the Spark property {key!r} has a character that no property of Spark has; correct its name")
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{key}={chr(92) * escaped.startswith(' ')}{escaped}\n"
