"""The settings of the process, from `COMPACTION_*` environment variables. A door reads them once, and they never change."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from compaction_pipeline.core.capacity.low_use import LowUseLimits
from compaction_pipeline.core.errors import ConfigError

log = logging.getLogger(__name__)

# Variables that begin so belong to the demo or to the tests.
_NOT_SETTINGS = ("COMPACTION_DEMO_", "COMPACTION_TEST_", "COMPACTION_SCREENSHOTS", "COMPACTION_SEED")
_OWNER = r"(team:[^\s,][^,]*|[^\s,@:]+@[^\s,@.]+(\.[^\s,@.]+)+)"
# Spark parses no others. It refuses them only after it has started a JVM, with forty lines of Java's stack.
_MASTER = r"local|local\[(\*|[1-9][0-9]*)(\s*,\s*[1-9][0-9]*)?\]|local-cluster\[[^]]+\]|spark://.+|k8s://.+|yarn"
_FORMS = {
    "spark_master": "local[*], local[N], spark://host:port, yarn or k8s://…",
    "spark_remote": "the address of Spark Connect, sc://host:port",
    "spark_application_url": "an address that begins with http:// or https:// and has {application} where the id goes",
    "ready_callback_url": "an address that begins with http:// or https://",
    "asset_prefix": "levels of letters, digits and '_', separated by '/'",
    "asset_owners": "team:name or an e-mail address, several separated by commas",
}
"""The patterns of texts, in words."""


class Settings(BaseSettings):
    """Every setting with its default and its rule. Intervals are in seconds."""

    model_config = SettingsConfigDict(env_prefix="COMPACTION_", frozen=True, extra="ignore")

    home: Path = Field(
        default_factory=lambda: Path.home() / ".compaction_pipeline",
        description="The folder of the program's own files. Only their owner may read them (folder 0700, SQLite state database and its "
        "copies 0600), because the state database holds the catalogs' credentials, and the key that encrypts them lies beside it.",
    )
    state_url: str | None = Field(
        default=None,
        description="The state database, as SQLAlchemy names it: `postgresql://user@host/db`, or `sqlite:////path/state.db` in a folder "
        "that exists. On PostgreSQL, run `compaction-pipeline state upgrade` after an update of the program.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        description="The key that encrypts the secrets of catalogs and groups in the state database, as `cryptography`'s "
        "`Fernet.generate_key()` makes it. Several keys are separated by commas: the first encrypts, and all decrypt. Without it, SQLite "
        "has a key file `state.db.key` beside the database, and PostgreSQL takes no literal secret.",
    )
    secret_key_file: Path | None = Field(
        default=None, description="A file with such keys, one in each line, in place of COMPACTION_SECRET_KEY. It is read anew each time."
    )
    secrets_folder: Path | None = Field(
        default=None,
        description="The folder below which `file:PATH` in a property of a catalog may name a file with a secret. Without it, none may.",
    )
    spark_master: str = Field(
        default="local[*]",
        pattern=rf"^({_MASTER})$",
        description="The Spark master that merges run on: `local[*]`, `local[N]`, `spark://host:port`, `yarn` or `k8s://…`.",
    )
    spark_remote: str | None = Field(
        default=None,
        pattern=r"^(sc://|local).*$",
        description="The Spark Connect server that merges run on, `sc://host:port`. It wins over COMPACTION_SPARK_MASTER.",
    )
    ready_callback_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s<>\"]+$",
        description="`serve` posts to this address when a partition that somebody awaits becomes ready, and when that is taken back "
        "(`docs/readiness.md`).",
    )
    ready_callback_secret: SecretStr | None = Field(
        default=None, description="The secret by which `serve` signs what it posts to COMPACTION_READY_CALLBACK_URL."
    )
    spark_application_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s<>\"]*\{application\}[^\s<>\"]*$",
        description="The address of the page of a Spark application, with `{application}` in place of its id, for example "
        "`https://history.example.com/history/{application}/jobs/`. Attempts then link to it.",
    )
    merge_engine: Literal["spark", "in-process"] = Field(
        default="spark",
        description="`in-process` merges one task at a time without Spark, in the process that asks: for tests and tiny set-ups.",
    )
    record_ttl_days: int = Field(
        default=30, ge=1, le=36_500, description="Records, ended tasks, ended optimizers and revoked tokens are kept this many days."
    )
    event_ttl_days: int = Field(
        default=7,
        ge=1,
        le=36_500,
        description="Once a week `compaction_retire_job` deletes from Dagster's event log the events of `delta_files`, `table_health`, "
        "`table_figures`, `compaction_queues`, `optimizers`, `waiting_jobs` and `compaction_capacity` older than this many days. The "
        "newest of each partition stays.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Log messages below this level are left out."
    )
    task_slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1,
        ge=1,
        le=1_000_000,
        description="One process hands at most this many tasks to Spark at a time.",
    )
    run_memory: int = Field(
        default=0,
        ge=0,
        le=2**60,
        description="The bytes of memory that are reserved for a run of Dagster, or a command, that merges: for all COMPACTION_TASK_SLOTS "
        "together. Costs and limits of teams count it. 0 means that it is not known. Optimizers say their own with `--memory`.",
    )
    retry_interval_seconds: float = Field(
        default=60,
        ge=0,
        le=86_400,
        description="A task whose attempt failed is tried again after this many seconds, as often as "
        "`self-optimizing.execute.num-retries` of its table allows. `compact` and a launched partition try their own tasks again at once.",
    )
    task_timeout_seconds: float = Field(
        default=3_600,
        ge=1,
        le=604_800,
        description="An attempt that takes longer than this many seconds has failed, although its process is alive.",
    )
    linger_seconds: float = Field(
        default=20, ge=0, le=86_400, description="`compact_job` ends when its queue has been empty for this many seconds."
    )
    drain_seconds: float = Field(default=3_600, ge=1, le=86_400, description="`compact_job` takes no new task after this many seconds.")
    low_use_minutes: float = Field(
        default=30, ge=1, le=1_440, description="An optimizer is judged by how it was used in so many minutes: `optimizer use` shows it."
    )
    low_use_cpu: float = Field(default=0.2, ge=0, le=1, description="Use is low when less than this part of an optimizer's cores was used.")
    low_use_memory: float = Field(
        default=0.5, ge=0, le=1, description="Use is low when the peak was less than this part of the memory that is reserved."
    )
    low_use_idle: float = Field(default=0.25, ge=0, le=0.99, description="Use is low when slots were idle for more than this part.")
    sensor_interval_seconds: int = Field(
        default=30,
        ge=1,
        le=86_400,
        description="Seconds between two ticks of `snapshot_sensor`, of `fragmentation_sensor` and of `commit_sensor`. "
        "`upkeep_sensor` ticks once in twenty times of it.",
    )
    keeper_interval_seconds: int = Field(default=5, ge=1, le=86_400, description="Seconds between two ticks of `keeper_sensor`.")
    catalog_interval_seconds: int = Field(
        default=180, ge=1, le=86_400, description="Seconds between two listings of the catalogs, by `catalog_sensor` and by `serve`."
    )
    catalog_threads: int = Field(
        default=10,
        ge=1,
        le=100,
        description="A listing of a catalog asks at most this many namespaces at a time, and a first look at new tables as many tables.",
    )
    catalogs_file: Path | None = Field(
        default=None,
        description="A YAML file with catalogs (`docs/catalog-definitions.md`). `serve` applies it when it starts, and so does each tick "
        "of Dagster. What it no longer names is reported, and stays.",
    )
    connect_seconds: float = Field(
        default=5,
        gt=0,
        le=600,
        description="A REST catalog, or a SQL catalog on PostgreSQL, must accept a connection within this many seconds. "
        "A REST catalog that does not is left alone for 10 s.",
    )
    spark_connect_seconds: float = Field(
        default=20,
        gt=0,
        le=600,
        description="A Spark on other machines (`spark://`, `sc://`) must give its first answer within this many seconds.",
    )
    read_seconds: float = Field(
        default=12, gt=0, le=3_600, description="A request to a catalog fails when the catalog is silent for this many seconds."
    )
    commit_seconds: float = Field(
        default=60,
        gt=0,
        le=3_600,
        description="A catalog must answer a commit within this many seconds. After that the commit's outcome is unknown, "
        "and the next command or tick finds it out from the table.",
    )
    containers_file: Path | None = Field(
        default=None,
        description="A YAML file with the containers that `serve` starts optimizers in. It is read anew every half minute.",
    )
    notices_file: Path | None = Field(
        default=None,
        description="A private YAML file with the addresses of `administrators` and of owners of teams, as apprise writes them. `serve` "
        "tells them what it scaled.",
    )
    maintainer_interval_seconds: float = Field(
        default=60,
        ge=1,
        le=86_400,
        description="Seconds between two rounds of `serve` that start optimizers for groups that want more, and drain those that are not "
        "wanted.",
    )
    asset_prefix: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9_]+(/[A-Za-z0-9_]+)*)?$",
        description="A prefix of every Dagster asset key, for example `platform/compaction`.",
    )
    asset_owners: str = Field(
        default="team:data-platform",
        pattern=rf"^({_OWNER}(,{_OWNER})*)?$",
        description="The owners of every Dagster asset, several separated by commas; an empty text means none.",
    )

    @property
    def low_use(self) -> LowUseLimits:
        """Below what an optimizer is badly used."""
        return LowUseLimits(timedelta(minutes=self.low_use_minutes), self.low_use_cpu, self.low_use_memory, self.low_use_idle)

    @property
    def state_database_url(self) -> str:
        """The URL of the state database that is used."""
        return self.state_url or f"sqlite:///{self.home.expanduser().absolute() / 'state.db'}"


def unknown_settings(names: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each variable that begins like a setting but is not a setting. It names the setting that was probably meant."""
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


def load_settings(given: Mapping[str, object] | None = None, options: Mapping[str, str] | None = None) -> Settings:
    """Read the environment, and warn of variables that are not settings. `given` wins over it: attributes of `CompactionPipeline`, or
    options of a command, and then `options` has their names.

    Raises ConfigError with the variable, the attribute or the option, its value and the rule.
    """
    given, options = given or {}, options or {}
    for sentence in unknown_settings(os.environ):
        log.warning(sentence)
    try:
        return Settings(**dict[str, Any](given))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        raise ConfigError(f"{_name(key, given, options)} is {first['input']!r} but must be {_rule(key)}; correct it, or unset it") from None


def _name(key: str, given: Mapping[str, object], options: Mapping[str, str]) -> str:
    """Where a value came from."""
    if key not in given:
        return f"COMPACTION_{key.upper()}"
    return options.get(key) or f"attribute {key!r} of CompactionPipeline"


def _rule(name: str) -> str:
    """The rule for the value of a setting, in words."""
    field = Settings.model_fields[name]
    if get_origin(field.annotation) is Literal:
        return f"one of {', '.join(get_args(field.annotation))}"
    if field.annotation not in (int, float):
        return _FORMS[name]
    kind = "a whole number" if field.annotation is int else "a number"
    bounds = {key: getattr(rule, key) for rule in field.metadata for key in ("ge", "gt", "le") if hasattr(rule, key)}
    return f"{kind} from {bounds['ge']} to {bounds['le']}" if "ge" in bounds else f"{kind} above {bounds['gt']}, at most {bounds['le']}"
