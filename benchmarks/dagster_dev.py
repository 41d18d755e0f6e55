"""Shared by the benchmarks that start `dagster dev` as the demo does."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from compaction_pipeline.demo.options import DemoOptions, child_environment
from compaction_pipeline.demo.processes import Processes, check_port, dagster_command, stop_on_signals

OURS = "compaction_pipeline.definitions"
"""The module of our code location."""


def parsed(parser: argparse.ArgumentParser, *, port: int) -> argparse.Namespace:
    """Parse the options of a benchmark, among them the port, which must be free. After this, a signal ends all that it starts."""
    parser.add_argument("--port", type=int, default=port)
    arguments = parser.parse_args()
    stop_on_signals()
    check_port(arguments.port, "--port")
    return arguments


def start_dagster(processes: Processes, options: DemoOptions, *, linger_seconds: int, module: str = OURS, **settings: str) -> int:
    """Start `dagster dev` as the demo does, with a draining run that waits `linger_seconds` for new tasks. Returns its process id.

    `module` holds the definitions; it may lie in this folder.
    """
    source = Path(__file__).parents[1] / "compaction_pipeline" / "demo" / "dagster.yaml"
    (options.dagster_home / "dagster.yaml").write_text(source.read_text())
    environment = child_environment(options) | {
        "COMPACTION_LINGER_SECONDS": str(linger_seconds),
        "COMPACTION_DRAIN_SECONDS": "7200",
        "PYTHONPATH": os.pathsep.join([str(source.parents[2]), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        **settings,
    }
    log = options.logs / "dagster.log"
    command = [module if part == OURS else part for part in dagster_command(options.port)]
    return processes.start("dagster dev", command, environment, options.root, log).pid
