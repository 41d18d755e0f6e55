"""The code location loads without opening anything, in its own deployment and, with a prefix, in another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.definitions import defs
from compaction_pipeline.settings import load_settings

_LOAD = """
import sys, socket, warnings
import dagster
for kind in (dagster.BetaWarning, dagster.PreviewWarning, dagster.SupersessionWarning): warnings.simplefilter("always", kind)
def refuse(*arguments, **options): raise AssertionError("loading must not connect")
socket.socket.connect = refuse
from compaction_pipeline.definitions import defs
repository = defs.get_repository_def()
print(sorted("/".join(key.path) for key in repository.asset_graph.get_all_asset_keys()))
print(sorted({owner for spec in defs.resolve_all_asset_specs() for owner in spec.owners}))
print("JVM" if "py4j.java_gateway" in sys.modules and __import__("pyspark").SparkContext._gateway else "no JVM")
"""

_IMPORT = """
import importlib, pkgutil, sys
opened = []
sys.addaudithook(lambda event, arguments: opened.append(str(arguments[0])) if event == "open" else None)
from compaction_pipeline import automation, component, definitions, defs
for module in pkgutil.iter_modules(defs.__path__):
    importlib.import_module(f"{defs.__name__}.{module.name}")
print([path for path in opened if path.startswith(sys.argv[1])])
try:
    definitions.defs
except Exception as error:
    print(type(error).__name__)
"""


def _load(home: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _LOAD],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "", "HOME": str(home), "COMPACTION_HOME": str(home / "compaction"), **environment},
    )
    assert done.stderr == "", "loading must warn nobody of anything that we chose"
    return done.stdout.splitlines()


def test_loading_opens_no_database_and_no_jvm_and_a_prefix_stands_before_every_key(tmp_path: Path) -> None:
    keys, owners, jvm = _load(tmp_path, COMPACTION_ASSET_PREFIX="lake/ops")
    names = (
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
    assert keys == str([f"lake/ops/{name}" for name in names])
    assert owners == "['team:data-platform']"
    assert jvm == "no JVM"
    assert list(tmp_path.iterdir()) == []


def test_importing_reads_no_file_and_no_setting(tmp_path: Path) -> None:
    (tmp_path / "own_assets.json").write_text("[]")
    # The prefix breaks its rule, which shows when the definitions are made, and not before.
    environment = {"PATH": "", "HOME": str(tmp_path), "COMPACTION_HOME": str(tmp_path), "COMPACTION_ASSET_PREFIX": "a//b"}
    done = subprocess.run([sys.executable, "-c", _IMPORT, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert (done.stdout.splitlines(), done.returncode) == (["[]", "ConfigError"], 0), done.stderr


def test_the_owners_of_the_assets_are_a_setting(tmp_path: Path) -> None:
    assert _load(tmp_path, COMPACTION_ASSET_OWNERS="team:Lake House,me@example.com")[1] == "['me@example.com', 'team:Lake House']"
    assert _load(tmp_path, COMPACTION_ASSET_OWNERS="")[1] == "[]"


@pytest.mark.parametrize("owners", ["data-platform", "team:", "me@", "team:a,", "a@b", "team: a"])
def test_owners_that_dagster_would_refuse_are_refused_with_the_rule(monkeypatch: pytest.MonkeyPatch, owners: str) -> None:
    monkeypatch.setenv("COMPACTION_ASSET_OWNERS", owners)
    with pytest.raises(ConfigError, match=r"COMPACTION_ASSET_OWNERS is .* but"):
        load_settings()


def test_every_asset_says_what_it_is_and_what_to_do() -> None:
    for spec in defs.resolve_all_asset_specs():
        assert spec.group_name == "compaction"
        assert spec.owners
        assert spec.kinds
        assert len(spec.description or "") > 100


def test_everything_that_runs_by_itself_does_so_from_the_start() -> None:
    repository = defs.get_repository_def()
    running = {sensor.name for sensor in repository.sensor_defs if sensor.default_status is dg.DefaultSensorStatus.RUNNING}
    assert running == {
        "snapshot_sensor",
        "fragmentation_sensor",
        "commit_sensor",
        "own_assets_sensor",
        "keeper_sensor",
        "catalog_sensor",
        "check_sensor",
        "upkeep_sensor",
        "queue_sensor",
    }


def test_our_definitions_merge_into_an_existing_deployment() -> None:
    @dg.asset
    def report() -> None: ...

    merged = dg.Definitions.merge(defs, dg.Definitions(assets=[report]))
    assert len(list(merged.resolve_all_asset_specs())) == 10


@pytest.mark.parametrize("prefix", ["a b", "a//c", "/a", "lake/"])
def test_a_prefix_that_no_asset_key_can_have_is_refused_with_a_sentence(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPACTION_ASSET_PREFIX", prefix)
    with pytest.raises(ConfigError, match="COMPACTION_ASSET_PREFIX is"):
        load_settings()


def test_the_page_of_dagster_names_everything_that_the_location_offers() -> None:
    page = (Path(__file__).parents[2] / "docs" / "dagster.md").read_text()
    repository = defs.get_repository_def()
    graph = repository.asset_graph
    names = {
        *(key.path[-1] for key in graph.get_all_asset_keys()),
        *(check.name for check in graph.asset_check_keys),
        *(sensor.name for sensor in repository.sensor_defs),
        *(schedule.name for schedule in repository.schedule_defs),
        *(job.name for job in repository.get_all_jobs() if not job.name.startswith("__")),
    }
    assert len(names) > 15
    assert {name for name in names if f"`{name}`" not in page} == set()
