"""The commands of `docs/ci.md` on a real table: they pass while it is healthy, and stop while it is ill."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from xml.etree import ElementTree as XML

import pytest
import yaml

from compaction_pipeline_tests.aged_tables import age
from compaction_pipeline_tests.defs.lake import Lake

pytestmark = pytest.mark.scenario

PAGE = (Path(__file__).parents[2] / "docs" / "ci.md").read_text()


def block(name: str) -> str:
    """The block of code of the page that follows the mark with this name."""
    found = re.search(rf"<!-- {name}: .*? -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None, f"the page has no block {name!r}"
    return found.group(1)


class Runner:
    """A machine of a CI service: an empty home, and the installed program on its path."""

    def __init__(self, folder: Path, lake: Lake) -> None:
        folder.mkdir()
        self.folder = folder
        self._environment = {
            "HOME": str(folder),
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "COMPACTION_MERGE_ENGINE": "in-process",
            "CATALOG_URI": lake.properties["uri"],
            "CATALOG_WAREHOUSE": lake.properties["warehouse"],
        }

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script as GitHub does: with bash, until a command of it fails."""
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=self.folder,
            env={**self._environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def workflow(self) -> Mapping[str, subprocess.CompletedProcess[str]]:
        """Run the steps of the page's job, and return those that ran by name. The first that fails is the last.

        The step that installs the program is left out, because these tests are about the program that is installed.
        """
        job = yaml.safe_load(block("workflow"))["jobs"]["check"]
        assert set(job["env"]) <= set(self._environment)
        ended: dict[str, subprocess.CompletedProcess[str]] = {}
        for step in job["steps"]:
            if "run" in step and step["name"] != "install":
                ended[step["name"]] = self.run(step["run"])
                if ended[step["name"]].returncode:
                    break
        return ended

    def results(self) -> dict[str, bool]:
        """Whether each test case of the JUnit report is neither a failure nor an error."""
        cases = XML.parse(self.folder / "compaction.xml").getroot().iter("testcase")
        return {case.get("name", ""): case.find("failure") is None and case.find("error") is None for case in cases}


def compact(folder: Path, lake: Lake) -> None:
    """Compact the table on another machine, which may write to it."""
    machine = Runner(folder, lake)
    added = machine.run('compaction-pipeline catalog add lake -p uri="$CATALOG_URI" -p warehouse="$CATALOG_WAREHOUSE"')
    assert added.returncode == 0, added.stderr
    mended = machine.run("compaction-pipeline compact lake.shop.orders")
    assert mended.returncode == 0, mended.stderr


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake whose table has had enough small files for a MINOR since a moment ago."""
    made = Lake(tmp_path / "lake")
    made.create_orders()
    made.append_small_files(1, 4)
    return made


def test_the_workflow_stops_on_an_ill_table_and_passes_when_it_is_compacted(lake: Lake, tmp_path: Path) -> None:
    ill = Runner(tmp_path / "ill", lake)
    ended = ill.workflow()
    assert {name: step.returncode for name, step in ended.items()} == {"register the catalog": 0, "check": 1}, ended
    assert "due_now (ERROR): 1 of 1 nodes fail; lake.shop.orders day=2026-01-01: MINOR: 4 small data files" in ended["check"].stdout
    assert [name for name, passed in ill.results().items() if not passed] == ["due_now"]
    compact(tmp_path / "mends", lake)
    healthy = Runner(tmp_path / "healthy", lake)
    ended = healthy.workflow()
    assert {name: step.returncode for name, step in ended.items()} == {"register the catalog": 0, "check": 0}, ended
    assert all(healthy.results().values())


def test_the_job_of_dagster_stops_and_passes_in_the_same_way(lake: Lake, tmp_path: Path) -> None:
    age(lake.orders, timedelta(days=1))
    runner = Runner(tmp_path / "runner", lake)
    (runner.folder / "dagster").mkdir()
    (runner.folder / "checks.yaml").write_text(block("configuration"))
    assert runner.run('compaction-pipeline catalog add lake -p uri="$CATALOG_URI" -p warehouse="$CATALOG_WAREHOUSE"').returncode == 0
    command = block("commands").strip()
    home = {"DAGSTER_HOME": str(runner.folder / "dagster")}
    ill = runner.run(command, **home)
    assert ill.returncode == 1
    assert "due_work_on_time (ERROR): 1 of 1 nodes fail" in ill.stderr
    now = runner.run(f"{command} -c checks.yaml", **home)
    assert now.returncode == 1
    assert "due_now (ERROR): 1 of 1 nodes fail" in now.stderr
    assert runner.run("compaction-pipeline compact lake.shop.orders").returncode == 0
    healthy = runner.run(f"{command} -c checks.yaml", **home)
    assert healthy.returncode == 0, healthy.stderr
