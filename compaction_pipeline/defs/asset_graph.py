"""Reads from the definitions of a code location which assets each asset depends on, for the dependency center."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import dagster as dg

from compaction_pipeline.core.errors import ConfigError


def asset_reads(module: str) -> Mapping[str, tuple[str, ...]]:
    """The assets that each asset of a module's definitions depends on, by keys like `reports/daily`. Raises ConfigError."""
    # As `dagster dev` does, so that modules of the working directory are found.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = import_module(module)
    except Exception as error:
        raise ConfigError(f"--dagster is {module!r}, which cannot be imported: {type(error).__name__}: {error}") from error
    found = [one for one in vars(loaded).values() if isinstance(one, dg.Definitions)]
    if len(found) != 1:
        raise ConfigError(f"--dagster is {module!r}, which has {len(found)} objects of dagster.Definitions: name a module with one")
    graph = found[0].resolve_asset_graph()
    return {
        key.to_user_string(): tuple(sorted(parent.to_user_string() for parent in graph.get(key).parent_keys))
        for key in graph.get_all_asset_keys()
    }
