"""What the component `CompactionPipeline` chose for this code location: settings, catalogs, and asset keys of tables.

Dagster keeps definitions as module-level objects, so a process can have one set of them. Their keys and intervals are fixed when their
modules are imported. Therefore a component makes its choices before that, and a second component with other choices is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import DeclaredCatalog, TableIdentifier


@dataclass(frozen=True, slots=True)
class Choices:
    """Settings by their names, which win over the environment, catalogs to register, and the levels of the asset keys of tables.

    Without a component all of them are empty.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    catalogs: tuple[DeclaredCatalog, ...] = ()
    asset_keys: Mapping[TableIdentifier, tuple[str, ...]] = field(default_factory=dict)


class _Process:
    """The choices of this process, and whether somebody has used them."""

    choices = Choices()
    used = False


def choose(choices: Choices) -> None:
    """Fix the choices of this process, before any module of definitions is imported. The same choices may be made again.

    Raises ConfigError when other choices are in use.
    """
    if _Process.used and choices != _Process.choices:
        raise ConfigError(
            "this process has already loaded the definitions of compaction_pipeline with other attributes: "
            "keep one CompactionPipeline in a code location, and do not import compaction_pipeline.definitions beside it"
        )
    _Process.choices = choices
    _Process.used = True


def chosen() -> Choices:
    """Return the choices of this process. From now on they cannot change."""
    _Process.used = True
    return _Process.choices
