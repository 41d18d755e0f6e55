"""Only one demo runs in a folder. Two demos would each compare their tables with the change log of both."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.demo.__main__ import alone
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.processes import Processes


def test_a_second_demo_in_the_same_folder_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    options = DemoOptions(tmp_path)
    with alone(options), pytest.raises(ConfigError, match=r"another demo runs in .*COMPACTION_DEMO_HOME"), alone(options):
        pass
    with alone(options):
        pass


def test_a_demo_is_refused_while_a_process_of_a_killed_one_runs(tmp_path: Path) -> None:
    options = DemoOptions(tmp_path)
    with Processes() as processes:
        with alone(options):
            sleeps = [sys.executable, "-c", "import signal; signal.pause()"]
            child = processes.start("child", sleeps, os.environ, tmp_path, tmp_path / "log")
        # The lock of this process is gone, as it is after SIGKILL.
        refused = rf"processes that it started still do after it was killed \(processes {child.pid}\)"
        with pytest.raises(ConfigError, match=refused), alone(options):
            pass
    with alone(options):
        pass
