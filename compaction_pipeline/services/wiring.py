"""What the use cases of every column are built of. `foundations` opens it, and each column's `wire` says what it builds of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from datetime import timedelta
    from pathlib import Path

    from compaction_pipeline.core.capacity.low_use import LowUseLimits
    from compaction_pipeline.core.commit.ports import Committer
    from compaction_pipeline.core.dependencies.center.ports import SqlReader
    from compaction_pipeline.core.dependencies.ports import FactsReader
    from compaction_pipeline.core.leases.ports import Clock, Heartbeat
    from compaction_pipeline.core.queue.ports.containers import Containers
    from compaction_pipeline.core.stores import Stores
    from compaction_pipeline.core.tables.ports.policies import PolicyReader
    from compaction_pipeline.core.tables.ports.scan import ChangeRates, KeyReader, TableScan
    from compaction_pipeline.core.upkeep.ports.commits import UpkeepCommitter
    from compaction_pipeline.core.upkeep.ports.files import FilesLooker
    from compaction_pipeline.core.upkeep.ports.snapshots import SnapshotStores
    from compaction_pipeline.core.work.merge_engine import MergeEngine
    from compaction_pipeline.core.work.merge_input import MergeInput
    from compaction_pipeline.core.work.result import MergeResult
    from compaction_pipeline.core.work.work import Work
    from compaction_pipeline.services.held_lease import Leases


class Settings(Protocol):
    """The settings that use cases obey. `settings.py` explains each."""

    @property
    def merge_engine(self) -> str: ...
    @property
    def task_slots(self) -> int: ...
    @property
    def task_timeout_seconds(self) -> float: ...
    @property
    def retry_interval_seconds(self) -> float: ...
    @property
    def record_ttl_days(self) -> float: ...
    @property
    def catalogs_file(self) -> Path | None: ...
    @property
    def catalog_interval_seconds(self) -> float: ...
    @property
    def maintainer_interval_seconds(self) -> float: ...
    @property
    def low_use(self) -> LowUseLimits: ...
    @property
    def spark_application_url(self) -> str | None: ...


class Wiring(Protocol):
    """The parts of one process, each opened when it is first used. `Foundations` describes them."""

    clock: Clock
    own_clock: Clock
    sleep: Callable[[float], None]
    on_step: Callable[[str], None]
    late: timedelta

    @property
    def _settings(self) -> Settings: ...
    @property
    def version(self) -> str: ...
    @property
    def _stores(self) -> Stores: ...
    @property
    def _leases(self) -> Leases: ...
    @property
    def _scan(self) -> TableScan: ...
    @property
    def _committer(self) -> Committer: ...
    @property
    def _snapshot_stores(self) -> SnapshotStores: ...
    @property
    def _upkeep_committer(self) -> UpkeepCommitter: ...
    @property
    def _files_looker(self) -> FilesLooker: ...
    @property
    def _facts_reader(self) -> FactsReader: ...
    @property
    def _read_sql(self) -> SqlReader: ...
    @property
    def _engine(self) -> MergeEngine: ...
    @property
    def _containers(self) -> Containers: ...
    @property
    def _key_reader(self) -> KeyReader: ...
    @property
    def _policy_reader(self) -> PolicyReader: ...
    @property
    def _change_rates(self) -> ChangeRates: ...
    @property
    def _new_id(self) -> Callable[[], str]: ...
    @property
    def _heartbeat(self) -> Heartbeat: ...
    @property
    def _undisturbed(self) -> Callable[[], AbstractContextManager[None]]: ...

    def new_owner(self) -> str: ...

    def spark_application(self) -> str: ...

    def _judge(self, task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> MergeResult: ...

    def _verify_rows(self, task: MergeInput[Work], result: MergeResult, file_io: Mapping[str, str]) -> str | None: ...
