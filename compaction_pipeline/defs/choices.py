"""What a component `CompactionPipeline`, or a program, chooses for one set of definitions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.settings import Settings, load_settings


@dataclass(frozen=True, slots=True)
class Choices:
    """Settings by their names, which win over the environment, catalogs to register, and the levels of the asset keys of tables.

    Without a component all of them are empty. `name_prefix` stands before the names of jobs, sensors and other things that are no assets.
    """

    settings: Mapping[str, object] = field(default_factory=dict)
    catalogs: tuple[CatalogDefinition, ...] = ()
    asset_keys: Mapping[TableIdentifier, tuple[str, ...]] = field(default_factory=dict)
    name_prefix: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_]*", self.name_prefix):
            raise ConfigError(
                f"attribute 'name_prefix' of CompactionPipeline is {self.name_prefix!r} but must be letters, digits and '_'; correct it, "
                "or leave it out"
            )

    def load_settings(self) -> Settings:
        """These settings, and the environment for all others. Raises ConfigError."""
        return load_settings(self.settings)

    @property
    def spark(self) -> tuple[tuple[str, object], ...]:
        """The chosen settings that a Spark session depends on."""
        return tuple(sorted((name, value) for name, value in self.settings.items() if name == "home" or name.startswith("spark_")))


def owners_of(settings: Settings) -> list[str]:
    """The owners of every asset."""
    return [owner for owner in settings.asset_owners.split(",") if owner]
