"""What Dagster's pages and daemon get of definitions: names, descriptions, dependencies, schemas of configurations, intervals.

`definitions.json` has all of it. A user who upgrades loses the history of an asset, or the cursor of a sensor, when its name changes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value

STORED = Path(__file__).parent / "definitions.json"

_OF_OPS = ("name", "description", "required_resource_keys", "pool", "tags")
_OUTSIDE = ("utilized_env_vars", "metadata", "__class__")
_INNER = ("__class__", "atomic_execution_unit_id")


def shapes(made: dg.Definitions) -> dict[str, Any]:
    """Everything that Dagster shows of these definitions. Of a configuration it has the hash of its schema, which covers descriptions."""
    repository = made.get_repository_def()
    repository.load_all_definitions()
    told = json.loads(serialize_value(RepositorySnap.from_def(repository)))
    jobs = {each["name"]: _job(each["pipeline_snapshot"]) for each in told.pop("external_pipeline_datas")}
    return {**_pruned({key: value for key, value in told.items() if key not in _OUTSIDE}), "jobs": jobs}


def text_of(shape: dict[str, Any]) -> str:
    """The same as it stands in the file."""
    return json.dumps(shape, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _job(snapshot: dict[str, Any]) -> Any:
    (mode,) = snapshot["mode_def_snaps"]
    ops = snapshot["solid_definitions_snapshot"]["solid_def_snaps"]
    needs = snapshot["dep_structure_snapshot"]["solid_invocation_snaps"]
    job = {
        "description": snapshot["description"],
        "tags": snapshot["tags"],
        "run_tags": snapshot.get("run_tags"),
        "config": mode["root_config_key"],
        "resources": [each["name"] for each in mode["resource_def_snaps"]],
        "ops": [{key: each.get(key) for key in _OF_OPS} | {"config": (each["config_field_snap"] or {}).get("type_key")} for each in ops],
        "steps": {each["solid_name"]: [one["input_name"] for one in each["input_dep_snaps"]] for each in needs},
    }
    return _pruned(job)


def _pruned(value: Any) -> Any:
    """The same without empty parts, which would be most of it."""
    if isinstance(value, dict):
        if set(value) == {"__class__", "path"}:
            return "/".join(value["path"])
        kept = {key: _pruned(each) for key, each in value.items() if key not in _INNER}
        return {key: each for key, each in kept.items() if each not in (None, {}, [], "")}
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    return value
