"""Reads how many change files the streams of a keyed table leave a day."""

from __future__ import annotations

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.tables.keyed.change_rate import ChangeRate
from compaction_pipeline.core.tables.ports.scan import ChangeRates
from compaction_pipeline.core.tables.table import TableIdentifier


class ReadChangeRate:
    """One verb: read."""

    def __init__(self, rates: ChangeRates, clock: Clock) -> None:
        self._rates = rates
        self._clock = clock

    def read(self, table: TableIdentifier) -> ChangeRate | str:
        """Measure the newest commits of a keyed table. The answer is a sentence when the table cannot be read now."""
        try:
            return self._rates.rate(table, self._clock())
        except CompactionError as error:
            return f"its change files of a day cannot be counted: {error}"
