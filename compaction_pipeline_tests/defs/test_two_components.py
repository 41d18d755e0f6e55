"""A project may have two components, each with a state database of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import pytest

# Dagster itself uses such parts of its own for every project.
pytestmark = [pytest.mark.filterwarnings(f"ignore::dagster.{kind}") for kind in ("BetaWarning", "PreviewWarning")]

_FILES = {
    "pyproject.toml": '[tool.dg]\ndirectory_type = "project"\n\n[tool.dg.project]\nroot_module = "two_lakes"\n',
    "src/two_lakes/__init__.py": "",
    "src/two_lakes/defs/__init__.py": "",
}
_BRONZE = "asset_prefix: bronze\n  name_prefix: bronze\n  state_url: sqlite:////nowhere/bronze.db"
_SILVER = "asset_prefix: silver\n  name_prefix: silver\n  state_url: sqlite:////nowhere/silver.db"
_SPARK = "\n  pyspark:\n    spark.master: "


def load(folder: Path, monkeypatch: pytest.MonkeyPatch, *components: str) -> dg.Definitions:
    """What Dagster loads from a project with components of these attributes."""
    yamls = {
        f"src/two_lakes/defs/{number}/defs.yaml": f"type: compaction_pipeline.CompactionPipeline\nattributes:\n  {attributes}\n"
        for number, attributes in enumerate(components)
    }
    for name, text in (_FILES | yamls).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(str(folder / "src"))
    for name in ("two_lakes", "two_lakes.defs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return dg.ComponentTree.for_project(folder).build_defs()


@pytest.mark.parametrize("spark", ["", f"{_SPARK}spark://there:7077"])
def test_both_are_loaded_and_open_nothing(spark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = load(tmp_path, monkeypatch, _BRONZE + spark, _SILVER + spark).get_repository_def()
    assert {key.path[0] for key in repository.asset_graph.get_all_asset_keys()} == {"bronze", "silver"}
    assert {"bronze_compact_job", "silver_compact_job"} <= {job.name for job in repository.get_all_jobs()}
    assert not Path("/nowhere").exists()


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ("asset_prefix: bronze", "asset_prefix: silver", "give each set another 'name_prefix'"),
        (_BRONZE, _SILVER.replace("silver.db", "bronze.db"), "give each set another 'state_url'"),
        (_BRONZE, f"{_SILVER}{_SPARK}local[2]", "different settings of Spark"),
        (f"{_BRONZE}{_SPARK}local[1]", f"{_SILVER}{_SPARK}local[2]", "different settings of Spark"),
    ],
)
def test_components_that_cannot_stand_together_are_refused_in_words(
    one: str, other: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="Error while") as refused:
        load(tmp_path, monkeypatch, one, other)
    assert said in str(refused.value.__cause__ or refused.value.__context__)
