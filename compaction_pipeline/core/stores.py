"""All ports of one state database, opened together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.access.ports import TokenStore
from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.capacity.notices.ports import NoticeStore
from compaction_pipeline.core.capacity.ports import TeamStore
from compaction_pipeline.core.capacity.scaling.ports import ScalingStore
from compaction_pipeline.core.catalogs.ports import SiteFileStore
from compaction_pipeline.core.commit.ports import CommitsStore, RecordStore
from compaction_pipeline.core.dependencies.center.figures import CenterFiguresReader
from compaction_pipeline.core.dependencies.center.ports import CenterStore, RunHistory
from compaction_pipeline.core.dependencies.ports import DependencyStore
from compaction_pipeline.core.insight.ports import HistoryStore, TableReader
from compaction_pipeline.core.leases.ports import LeaseStore
from compaction_pipeline.core.planning.ports import PlanningStore
from compaction_pipeline.core.queue.ports.groups import GroupStore
from compaction_pipeline.core.queue.ports.optimizers import OptimizerStore, WatcherStore
from compaction_pipeline.core.queue.ports.tasks import QueueReader, TaskStore
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.ports.files import FileStore
from compaction_pipeline.core.tables.ports.index import IndexStore, NodeKeyStore, SwitchStore
from compaction_pipeline.core.tables.ports.listings import ListingStore, MoveStore
from compaction_pipeline.core.tables.ports.policies import PolicyStore
from compaction_pipeline.core.tables.ports.reports import ReportStore
from compaction_pipeline.core.upkeep.ports.orphans import OrphanStore
from compaction_pipeline.core.upkeep.ports.snapshots import UpkeepStore


@dataclass(frozen=True, slots=True)
class Stores:
    """One store for each port.

    `begin_write` begins an empty write transaction within a time, or raises StorageUnavailable. `close` closes the database's connections.
    `upgraded` is true when opening migrated an older database. `now` is the database's own clock. It is None for SQLite, because all
    processes that share its file run on one host and have the same clock. `rotate_key` encrypts all secrets with a new key, and returns how
    many catalogs and groups have some; it raises ConfigError when a key is missing.
    """

    catalogs: CatalogStore
    tables: TableReader
    index: IndexStore
    planning: PlanningStore
    commits: CommitsStore
    switches: SwitchStore
    files: FileStore
    tasks: TaskStore
    records: RecordStore
    leases: LeaseStore
    history: HistoryStore
    node_keys: NodeKeyStore
    optimizers: OptimizerStore
    groups: GroupStore
    tokens: TokenStore
    queues: QueueReader
    reports: ReportStore
    watchers: WatcherStore
    upkeep: UpkeepStore
    orphans: OrphanStore
    policies: PolicyStore
    site_files: SiteFileStore
    listings: ListingStore
    moves: MoveStore
    dependencies: DependencyStore
    center: CenterStore
    center_figures: CenterFiguresReader
    center_runs: RunHistory
    costs: CostStore
    teams: TeamStore
    notices: NoticeStore
    scaling: ScalingStore
    begin_write: Callable[[timedelta], None] = lambda within: None
    close: Callable[[], None] = lambda: None
    upgraded: bool = False
    now: Callable[[], datetime] | None = None
    rotate_key: Callable[[], int] = lambda: 0
