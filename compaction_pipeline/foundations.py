"""What use cases are built of: the state database, the catalogs, the merge engine, the clock and random ids.

Nothing is opened before it is needed: building `Foundations` touches no database, no catalog and no JVM. Nor is anything imported early.
PyIceberg, PyArrow and PySpark take seconds to import, and a command that only reads the state database needs none of them. So each
property imports what it builds. import-linter checks these imports too.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any

from compaction_pipeline.core.capacity.notices.ports import NoticeSender
from compaction_pipeline.core.commit.late_requests import LATE_REQUEST
from compaction_pipeline.core.commit.ports import Committer
from compaction_pipeline.core.leases.holders import owner_of
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.queue.ports.containers import Containers
from compaction_pipeline.core.tables.ports.policies import PolicyReader
from compaction_pipeline.core.tables.ports.scan import ChangeRates, KeyReader, TableScan
from compaction_pipeline.core.upkeep.ports.commits import UpkeepCommitter
from compaction_pipeline.core.upkeep.ports.files import FilesLooker
from compaction_pipeline.core.upkeep.ports.snapshots import SnapshotStores
from compaction_pipeline.core.work.merge_engine import MergeEngine
from compaction_pipeline.process import hide_secrets_in_logs

if TYPE_CHECKING:
    from compaction_pipeline.core.dependencies.center.ports import SqlReader
    from compaction_pipeline.core.dependencies.ports import FactsReader
    from compaction_pipeline.core.stores import Stores
    from compaction_pipeline.core.work.merge_input import MergeInput
    from compaction_pipeline.core.work.result import MergeResult
    from compaction_pipeline.core.work.work import Work
    from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
    from compaction_pipeline.settings import Settings
    from compaction_pipeline.spark.engine import Sessions
    from compaction_pipeline.spark.java import JavaHome


def utc_now() -> datetime:
    """The current time in UTC, by the clock of this host."""
    return datetime.now(timezone.utc)


def new_id() -> str:
    """A random id of 12 hex digits. That is enough for the records and plans of one state database."""
    return uuid.uuid4().hex[:12]


def this_process() -> str:
    """The name of this process as the holder of a lease, when no better name is known."""
    return f"process {os.getpid()} on {socket.gethostname()}"


def open_state_database(settings: Settings, *, upgrade: bool = False) -> Stores:
    """Open the state database that the settings name."""
    from compaction_pipeline.storage.sealing import GivenKeys
    from compaction_pipeline.storage.stores import open_stores

    keys = GivenKeys(None if settings.secret_key is None else settings.secret_key.get_secret_value(), settings.secret_key_file)
    # Only the folder of the default database is created: if a person misspells a folder, it must not be created.
    memory = settings.run_memory // (1 if settings.merge_engine == "in-process" else settings.task_slots)
    return open_stores(settings.state_database_url, upgrade=upgrade, make_folder=not settings.state_url, keys=keys, run_slot_memory=memory)


def no_step(step: str) -> None:
    """Do nothing. Crash tests put a hook in its place."""


@dataclass
class Foundations:
    """The parts of one process, built on first use. `close` frees everything that was opened.

    `clock` is the clock of the state database, so that processes of different hosts mean the same time. `own_clock` is that of this host,
    for times that no other process sees: it never waits for the database. Tests give a clock of their own, which then goes for everything.
    """

    settings: Settings
    clock: Clock = utc_now
    sleep: Callable[[float], None] = time.sleep
    on_step: Callable[[str], None] = no_step
    engine_override: MergeEngine | None = field(default=None)
    late: timedelta = LATE_REQUEST
    holder: str = field(default_factory=this_process)
    spark_name: str = "compaction-pipeline"
    spark_slots: int = 0
    """So many tasks merge at a time; 0 when the number of Spark's threads says how many. Set it before anything that merges is built."""
    server_url: str = ""
    """The URL that optimizers on this host reach this server by; "" when this process is no server."""
    open_spark: Callable[[], Any] | None = None
    """Opens the Spark session of somebody else that merges run on. Without it, the settings say where merges run."""

    def __post_init__(self) -> None:
        hide_secrets_in_logs()
        self.own_clock = self.clock
        if self.clock is utc_now:
            self.clock = self._state_time

    def merge_on(self, open_spark: Callable[[], Any]) -> None:
        """Let merges run on the session of somebody else. Call it before anything that merges is built; else raises RuntimeError."""
        if "_engine" in self.__dict__ or "_spark_sessions" in self.__dict__:
            raise RuntimeError("the merges of these services already have the Spark of the settings")
        self.open_spark = open_spark

    def check_ready(self, within: timedelta) -> None:
        """Raise StorageUnavailable when no write transaction of the state database begins within this time."""
        self._stores.begin_write(within)

    def _state_time(self) -> datetime:
        """The time that the processes on one state database share."""
        return (self._stores.now or utc_now)()

    def _spent(self) -> tuple[float, float]:
        """The seconds of a clock that never goes back, and the CPU seconds of this thread."""
        return time.monotonic(), time.thread_time()

    def new_owner(self) -> str:
        """The owner of a new lease or attempt. It names the holder for others that wait, and is different each time."""
        return owner_of(self.holder, new_id())

    @cached_property
    def version(self) -> str:
        """The version of this program."""
        from importlib.metadata import version

        return version("compaction-pipeline")

    @cached_property
    def _stores(self) -> Stores:
        return open_state_database(self.settings)

    @cached_property
    def _catalogs(self) -> Catalogs:
        from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
        from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
        from compaction_pipeline.iceberg.catalogs.secret_values import SecretValues
        from compaction_pipeline.iceberg.catalogs.site_files import filled_by

        settings = self.settings
        limits = RequestLimits(settings.connect_seconds, settings.read_seconds, settings.commit_seconds)
        filled = filled_by(lambda: self._stores.site_files, settings.home / "site-files")
        secrets = SecretValues(settings.secrets_folder)
        return Catalogs(self._stores.catalogs.entry, limits, secrets, filled, threads=settings.catalog_threads)

    @cached_property
    def _scan(self) -> TableScan:
        from compaction_pipeline.iceberg.table_scan import IcebergScan

        return IcebergScan(self._catalogs)

    @cached_property
    def _policy_reader(self) -> PolicyReader:
        from compaction_pipeline.iceberg.catalogs.policies import CatalogPolicies

        return CatalogPolicies(self._catalogs)

    @cached_property
    def _key_reader(self) -> KeyReader:
        from compaction_pipeline.iceberg.keyed.read_keys import IcebergKeyReader

        return IcebergKeyReader(self._catalogs)

    @cached_property
    def _change_rates(self) -> ChangeRates:
        from compaction_pipeline.iceberg.keyed.change_rates import IcebergChangeRates

        return IcebergChangeRates(self._catalogs)

    @cached_property
    def _committer(self) -> Committer:
        from compaction_pipeline.iceberg.commit.committer import IcebergCommitter

        return IcebergCommitter(self._catalogs, on_step=self.on_step)

    @cached_property
    def _snapshot_stores(self) -> SnapshotStores:
        from compaction_pipeline.iceberg.upkeep.snapshot_stores import IcebergSnapshotStores

        return IcebergSnapshotStores(self._catalogs, self.on_step)

    @cached_property
    def _upkeep_committer(self) -> UpkeepCommitter:
        from compaction_pipeline.iceberg.upkeep.commits import IcebergUpkeepCommitter

        return IcebergUpkeepCommitter(self._catalogs, self.clock, on_step=self.on_step)

    @cached_property
    def _files_looker(self) -> FilesLooker:
        from compaction_pipeline.iceberg.upkeep.look_at_files import IcebergFilesLooker

        return IcebergFilesLooker(self._catalogs, self.on_step)

    @cached_property
    def _facts_reader(self) -> FactsReader:
        from compaction_pipeline.iceberg.dependencies.facts_reader import IcebergFactsReader

        return IcebergFactsReader(self._catalogs)

    @cached_property
    def _read_sql(self) -> SqlReader:
        from compaction_pipeline.iceberg.dependencies.sql_reader import read_sql

        return read_sql

    @cached_property
    def _spark_sessions(self) -> Sessions:
        from compaction_pipeline.spark.given_session import GivenSession
        from compaction_pipeline.spark.session import SparkSessions, SparkSettings, with_threads

        settings = self.settings
        home = settings.home.expanduser().absolute()
        if self.open_spark is not None:
            return GivenSession(self.open_spark, home)
        seconds = settings.spark_connect_seconds
        master = with_threads(settings.spark_master, self.spark_slots)
        return SparkSessions(SparkSettings(master, settings.spark_remote, str(home), {}, seconds, self.spark_name))

    @property
    def merges_on(self) -> str | None:
        """The Spark that merges run on, as people call it; None when they run in this process.

        Where Spark would be one of this process (`SmallFirstEngine`), it is started for the first task that is not small.
        """
        settings = self.settings
        if settings.merge_engine == "in-process":
            return None
        if self.open_spark is not None:
            return "the Spark session of the resource 'pyspark'"
        return f"Spark at {settings.spark_remote or settings.spark_master}"

    def spark_session(self) -> Any:
        """Start the Spark session that merges run on, or find it running. Raises ConfigError, StorageUnavailable."""
        return self._spark_sessions.session()

    @property
    def merges_on_this_host(self) -> bool:
        """Whether merges run in this process and its children, and not on a cluster."""
        settings = self.settings
        is_local = settings.spark_remote is None and settings.spark_master.split("[")[0] == "local"
        return is_local or settings.merge_engine == "in-process"

    def spark_application(self) -> str:
        """The id of the Spark application that merges run in; "" while no session is open."""
        # The property makes the sessions when it is asked, and would import Spark.
        session = self._spark_sessions.running() if "_spark_sessions" in self.__dict__ else None
        if session is None:
            return ""
        from compaction_pipeline.spark.session_kind import application_id_of

        return application_id_of(session)

    def spark_gc(self) -> tuple[float, float] | None:
        """For how long the JVM of the Spark driver has collected garbage, and how long it has run, as the last merge found it."""
        session = self._spark_sessions.running() if "_spark_sessions" in self.__dict__ else None
        if session is None:
            return None
        from compaction_pipeline.spark.session_kind import gc_of

        return gc_of(session)

    @cached_property
    def _engine(self) -> MergeEngine:
        if self.engine_override is not None:
            return self.engine_override
        from compaction_pipeline.merging.engine import InProcessMergeEngine
        from compaction_pipeline.merging.small_first import SmallFirstEngine
        from compaction_pipeline.spark.running import runs_in_this_process

        settings = self.settings
        if settings.merge_engine == "in-process":
            return InProcessMergeEngine()
        is_local = self.merges_on_this_host
        if self.open_spark is None and is_local:
            return SmallFirstEngine(self._spark_engine, runs_in_this_process)
        return self._spark_engine()

    def _spark_engine(self) -> MergeEngine:
        from compaction_pipeline.spark.engine import SparkMergeEngine

        return SparkMergeEngine(self._spark_sessions)

    @cached_property
    def _containers(self) -> Containers:
        from compaction_pipeline.containers.host_containers import HostContainers

        file = self.settings.containers_file
        home = self.settings.home.expanduser().absolute()
        return HostContainers(file and file.expanduser(), home, lambda: self.server_url, lambda: self.find_java().path)

    @cached_property
    def _notice_sender(self) -> NoticeSender:
        from compaction_pipeline.notices.by_apprise import ByApprise

        return ByApprise()

    def _judge(self, task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> MergeResult:
        """Judge the report of a merge (`Judge`)."""
        from compaction_pipeline.merging.reported.judge import judge

        return judge(task, result, file_io)

    def _verify_rows(self, task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> str | None:
        """Compare the rows of a report with those of its task, in a process of its own (`Verify`)."""
        from compaction_pipeline.merging.process import MergeProcess

        return MergeProcess().verify(task, result, file_io)

    def check_containers(self) -> None:
        """Raise ConfigError when the file of containers cannot be read, or when something in it is wrong."""
        self._containers.containers()

    def start_engine(self) -> None:
        """Start the merge engine, or find it running. Raises ConfigError, StorageUnavailable."""
        self._engine.ready()

    def find_java(self) -> JavaHome:
        """The Java that a local Spark would run on. Raises ConfigError when no Java fits."""
        from compaction_pipeline.spark.java import find_java

        return find_java(os.environ, self.settings.home.expanduser().absolute())

    def try_spark(self) -> str:
        """Start Spark, or connect to it, and run one task there. Answers in words what ran."""
        from compaction_pipeline.spark.trial import run_one_task

        return run_one_task(self.spark_session(), self.settings.spark_remote or self.settings.spark_master)

    def close(self) -> None:
        """Stop the Spark session if one was started, and close the connections to the state database."""
        if "_engine" in self.__dict__:
            self._engine.close()
        if "_spark_sessions" in self.__dict__:
            self._spark_sessions.stop()
        if "_stores" in self.__dict__:
            self._stores.close()
