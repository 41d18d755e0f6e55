"""Opens all stores of one state database together."""

from __future__ import annotations

from functools import partial

from compaction_pipeline.core.stores import Stores
from compaction_pipeline.storage.catalogs import SqlCatalogStore
from compaction_pipeline.storage.center_figures import SqlCenterFiguresReader
from compaction_pipeline.storage.center_leader import SqlCenterStore
from compaction_pipeline.storage.center_runs import SqlRunHistory
from compaction_pipeline.storage.clock import DatabaseClock
from compaction_pipeline.storage.commits import SqlCommitsStore
from compaction_pipeline.storage.costs import SqlCostStore
from compaction_pipeline.storage.dependencies import SqlDependencyStore
from compaction_pipeline.storage.engine import open_state
from compaction_pipeline.storage.files import SqlFileStore
from compaction_pipeline.storage.groups import SqlGroupStore
from compaction_pipeline.storage.history import SqlHistoryStore
from compaction_pipeline.storage.index import SqlIndexStore
from compaction_pipeline.storage.leases import SqlLeaseStore
from compaction_pipeline.storage.listings import SqlListingStore
from compaction_pipeline.storage.migrations import migrate
from compaction_pipeline.storage.moves import SqlMoveStore
from compaction_pipeline.storage.node_keys import SqlNodeKeyStore
from compaction_pipeline.storage.notices import SqlNoticeStore
from compaction_pipeline.storage.optimizers import SqlOptimizerStore
from compaction_pipeline.storage.orphans import SqlOrphanStore
from compaction_pipeline.storage.planning import SqlPlanningStore
from compaction_pipeline.storage.policies import SqlPolicyStore
from compaction_pipeline.storage.queues import SqlQueueReader
from compaction_pipeline.storage.readiness import begin_write
from compaction_pipeline.storage.records import SqlRecordStore
from compaction_pipeline.storage.reports import SqlReportStore
from compaction_pipeline.storage.scaling import SqlScalingStore
from compaction_pipeline.storage.sealing import GivenKeys, Sealer
from compaction_pipeline.storage.site_files import SqlSiteFileStore
from compaction_pipeline.storage.switches import SqlSwitchStore
from compaction_pipeline.storage.tables import SqlTableReader
from compaction_pipeline.storage.tasks import SqlTaskStore
from compaction_pipeline.storage.team_rooms import Reckoning, own_clock
from compaction_pipeline.storage.teams import SqlTeamStore
from compaction_pipeline.storage.tokens import SqlTokenStore
from compaction_pipeline.storage.upkeep import SqlUpkeepStore
from compaction_pipeline.storage.watchers import SqlWatcherStore


def open_stores(
    url: str,
    *,
    upgrade: bool = False,
    make_folder: bool = False,
    keys: GivenKeys = GivenKeys(),
    run_slot_memory: int = 0,
    reckoning: Reckoning | None = None,
) -> Stores:
    """Open a state database, and create or migrate its tables where that is allowed (see `migrations`).

    `run_slot_memory` is the memory of a slot of this process, in bytes, when it merges and is no optimizer; 0 when nobody knows it.
    `reckoning` is what the limits of teams are reckoned with; None means the clock of the database, and that memory.

    `upgrade` allows the migration on PostgreSQL. With `make_folder`, the folder of a SQLite file is created. `keys` encrypt secrets.

    Raises ConfigError for a URL or a version that cannot be used, and StorageUnavailable when the database does not answer.
    """
    engine = open_state(url, make_folder=make_folder)
    sealer = Sealer(engine, keys)
    upgraded = migrate(engine, sealer, upgrade=upgrade)
    now = DatabaseClock(engine).now if engine.dialect.name == "postgresql" else None
    reckoning = reckoning or Reckoning(now or own_clock, run_slot_memory)
    return Stores(
        SqlCatalogStore(engine, sealer),
        SqlTableReader(engine),
        SqlIndexStore(engine),
        SqlPlanningStore(engine),
        SqlCommitsStore(engine),
        SqlSwitchStore(engine),
        SqlFileStore(engine),
        SqlTaskStore(engine, reckoning),
        SqlRecordStore(engine),
        SqlLeaseStore(engine),
        SqlHistoryStore(engine),
        SqlNodeKeyStore(engine),
        SqlOptimizerStore(engine),
        SqlGroupStore(engine, sealer),
        SqlTokenStore(engine),
        SqlQueueReader(engine, reckoning),
        SqlReportStore(engine),
        SqlWatcherStore(engine),
        SqlUpkeepStore(engine),
        SqlOrphanStore(engine),
        SqlPolicyStore(engine),
        SqlSiteFileStore(engine, sealer),
        SqlListingStore(engine),
        SqlMoveStore(engine),
        SqlDependencyStore(engine),
        SqlCenterStore(engine),
        SqlCenterFiguresReader(engine),
        SqlRunHistory(engine),
        SqlCostStore(engine),
        SqlTeamStore(engine, reckoning),
        SqlNoticeStore(engine),
        SqlScalingStore(engine),
        partial(begin_write, engine),
        engine.dispose,
        upgraded,
        now,
        sealer.rotate,
    )
