"""What works of upkeep that commit need of tables. `iceberg/upkeep/commits.py` fulfils it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from compaction_pipeline.core.ids import RecordId
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.commit_record import UpkeepOutcome, UpkeepPlan, UpkeepTarget
from compaction_pipeline.core.upkeep.works import UpkeepWork


class UpkeepCommitter(Protocol):
    """Does works that make one snapshot of one store. `catalog` are the properties of the table's catalog.

    Every method raises NotFoundError when the table is gone, TableRefused when it is not supported, ConfigError when a property of it
    breaks its rule, and StorageUnavailable or one of its subclasses when the storage or the catalog does not answer.
    """

    def targets(self, table: TableIdentifier, work: UpkeepWork) -> Sequence[UpkeepTarget]:
        """The stores of a table in which the work is done, in their order; none when the table has no such store."""

    def look(self, target: UpkeepTarget, catalog: Mapping[str, str]) -> UpkeepPlan:
        """Return what the work would do now. Nothing is written."""

    def commit(self, target: UpkeepTarget, record_id: RecordId, catalog: Mapping[str, str]) -> UpkeepOutcome:
        """Do the work, in one snapshot. The caller holds the table's commit lease. When it raises, certainly nothing was committed."""

    def settle(self, target: UpkeepTarget, record_id: RecordId) -> UpkeepOutcome:
        """Find out from the table how an earlier commit with this id ended. Nothing is written.

        The state is UNKNOWN only while that commit may still land.
        """
