"""`dg` works in this checkout, and in a project of somebody else that installs the program and scaffolds the component."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from compaction_pipeline_tests.defs.lake import Lake, key

pytestmark = pytest.mark.scenario

_CHECKOUT = Path(__file__).parents[2]
_BIN = Path(sys.executable).parent
_FILES = {
    # This is what `create-dagster project` writes, without its comments.
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "shop_platform"\n',
    "src/shop_platform/__init__.py": "",
    "src/shop_platform/defs/__init__.py": "",
    "src/shop_platform/definitions.py": "from pathlib import Path\n\nfrom dagster import definitions, load_from_defs_folder\n\n\n"
    "@definitions\ndef defs():\n    return load_from_defs_folder(path_within_project=Path(__file__).parent)\n",
    "src/shop_platform/defs/report.py": "import dagster as dg\n\n\n@dg.asset\ndef report() -> None: ...\n",
}
_ASSETS = (
    "compacted_files",
    "compaction_capacity",
    "compaction_queues",
    "compaction_records",
    "delta_files",
    "optimizers",
    "table_figures",
    "table_health",
    "waiting_jobs",
)
_COMPONENT = """\
type: compaction_pipeline.CompactionPipeline
attributes:
  asset_prefix: platform
  catalogs:
    - name: lake
      properties:
        type: sql
        uri: sqlite:///{folder}/catalog.db
        warehouse: "{{{{ env.LAKE_WAREHOUSE }}}}"
"""


class Shell:
    """Runs commands of the environment in a folder, with a new Dagster instance and a new state database."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._folder = folder
        (home / "dagster").mkdir(parents=True)
        (home / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("COMPACTION_", "DAGSTER_"))},
            "PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(_BIN.parent),
            # An installed project is importable. This stands for its installation.
            "PYTHONPATH": str(folder / "src"),
            "DAGSTER_HOME": str(home / "dagster"),
            "COMPACTION_HOME": str(home / "state"),
            "COMPACTION_MERGE_ENGINE": "in-process",
        }

    def run(self, *command: str, **environment: str) -> str:
        """The output of a command that must succeed, with its errors."""
        done = subprocess.run(command, cwd=self._folder, env={**self._environment, **environment}, capture_output=True, text=True)
        assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def definitions(self, **environment: str) -> dict[str, Any]:
        listed = self.run("dg", "list", "defs", "--json", **environment)
        return json.loads(listed[listed.index("{") : listed.rindex("}") + 1])  # type: ignore[no-any-return]


@pytest.fixture
def checkout(tmp_path: Path) -> Shell:
    return Shell(_CHECKOUT, tmp_path)


@pytest.fixture
def project(tmp_path: Path) -> Shell:
    folder = tmp_path / "shop-platform"
    for name, text in _FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Shell(folder, tmp_path)


def test_dg_and_dagster_accept_the_checkout(checkout: Shell) -> None:
    assert "All definitions loaded successfully" in checkout.run("dg", "check", "defs")
    assert "Validation successful for code location compaction_pipeline" in checkout.run("dagster", "definitions", "validate")
    assert "compaction_pipeline.CompactionPipeline" in checkout.run("dg", "list", "components", "--json")
    assert "RUN_SUCCESS" in checkout.run("dg", "launch", "--job", "compaction_retire_job")


def test_a_project_scaffolds_the_component_and_compacts_with_it(project: Shell, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.create_orders()
    lake.append_small_files(1, 4)
    rows = lake.rows()
    secret = {"LAKE_WAREHOUSE": lake.properties["warehouse"]}
    project.run("dg", "scaffold", "defs", "compaction_pipeline.CompactionPipeline", "compaction")
    assert "All definitions loaded successfully" in project.run("dg", "check", "defs")
    yaml = tmp_path / "shop-platform/src/shop_platform/defs/compaction/defs.yaml"
    assert "asset_prefix: platform/compaction" in yaml.read_text()
    yaml.write_text(_COMPONENT.format(folder=lake.folder))
    keys = {asset["asset_key"] for asset in project.definitions(**secret)["assets"]}
    assert keys == {"report", *(f"platform/{name}" for name in _ASSETS)}
    assert "RUN_SUCCESS" in project.run("dg", "launch", "--assets", "report", **secret)
    # The instance has no partition yet, and no sensor has listed the catalog.
    assert "RUN_SUCCESS" in project.run("dg", "launch", "--assets", "platform/compacted_files", "--partition", key(1), **secret)
    assert (lake.files(), lake.rows()) == (1, rows)
    assert "lake" in project.run("compaction-pipeline", "catalog", "list")
