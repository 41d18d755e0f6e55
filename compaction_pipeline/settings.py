"""Settings of the process, from `COMPACTION_*` environment variables. Frozen; read once, by the doors."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from compaction_pipeline.core.errors import ConfigError

log = logging.getLogger(__name__)

# Other variables of ours: of the demo, and of the tests.
_NOT_SETTINGS = ("COMPACTION_DEMO_", "COMPACTION_TEST_", "COMPACTION_SCREENSHOTS", "COMPACTION_SEED")
_OWNER = r"(team:[^\s,][^,]*|[^\s,@:]+@[^\s,@.]+(\.[^\s,@.]+)+)"


class Settings(BaseSettings):
    """Every setting, its default and its rule. Intervals in seconds."""

    model_config = SettingsConfigDict(env_prefix="COMPACTION_", frozen=True, extra="ignore")

    home: Path = Field(default_factory=lambda: Path.home() / ".compaction_pipeline", description="folder of our own files")
    state_url: str | None = Field(default=None, description="SQLAlchemy URL of the state database; default: SQLite under home")
    spark_master: str = Field(default="local[*]", description="Spark master where no remote is set")
    spark_remote: str | None = Field(default=None, description="Spark Connect server, sc://host:port")
    merge_engine: Literal["spark", "in-process"] = Field(
        default="spark", description="in-process merges in this process, one task at a time, without Spark: tests and tiny set-ups"
    )
    record_ttl_days: int = Field(default=30, ge=1, le=36_500, description="records and ended tasks are kept this long")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    queue_slots: int = Field(default=1_000, ge=1, le=1_000_000, description="tasks of one group that may be planned and not yet merged")
    task_slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1, ge=1, le=1_000_000, description="tasks that one process hands to Spark at a time"
    )
    linger_seconds: float = Field(default=20, ge=0, le=86_400, description="compact_job ends after its queue was empty this long")
    drain_seconds: float = Field(default=3_600, ge=1, le=86_400, description="compact_job polls no longer than this")
    sensor_interval_seconds: int = Field(default=30, ge=1, le=86_400, description="snapshot, fragmentation and commit sensors")
    keeper_interval_seconds: int = Field(default=5, ge=1, le=86_400, description="keeper sensor")
    catalog_interval_seconds: int = Field(default=180, ge=1, le=86_400, description="listing of registered catalogs")
    connect_seconds: float = Field(default=5, gt=0, le=600, description="a catalog accepts a connection within")
    spark_connect_seconds: float = Field(default=20, gt=0, le=600, description="a Spark elsewhere answers a first time within")
    read_seconds: float = Field(default=12, gt=0, le=3_600, description="a catalog goes on with an answer within")
    commit_seconds: float = Field(default=60, gt=0, le=3_600, description="a catalog answers a commit within")
    asset_prefix: str = Field(
        default="", pattern=r"^([A-Za-z0-9_]+(/[A-Za-z0-9_]+)*)?$", description="prefix of every asset key, levels separated by /"
    )
    asset_owners: str = Field(
        default="team:data-platform",
        pattern=rf"^({_OWNER}(,{_OWNER})*)?$",
        description="owners of every asset in Dagster: team:name or an e-mail address, several separated by commas; empty: none",
    )

    @property
    def state_database_url(self) -> str:
        """The state database in force."""
        return self.state_url or f"sqlite:///{self.home.expanduser().absolute() / 'state.db'}"


def unknown_settings(names: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each of these environment variables that begins like a setting and is none, with the setting that was meant."""
    known = {f"COMPACTION_{name.upper()}" for name in Settings.model_fields}
    sentences = []
    for name in sorted(names):
        upper = name.upper()
        if not upper.startswith("COMPACTION_") or upper in known or upper.startswith(_NOT_SETTINGS):
            continue
        near = difflib.get_close_matches(upper, known, n=1, cutoff=0.8)
        meant = f": did you mean {near[0]}?" if near else ""
        sentences.append(f"{name} is set, but no setting has this name, so it has no effect{meant}")
    return tuple(sentences)


def load_settings() -> Settings:
    """Read the environment. Raises ConfigError that names the variable, its value and the rule; warns of variables that are no settings."""
    for sentence in unknown_settings(os.environ):
        log.warning(sentence)
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = "COMPACTION_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigError(f"{name} is {first['input']!r} but {first['msg'][0].lower()}{first['msg'][1:]}") from None
