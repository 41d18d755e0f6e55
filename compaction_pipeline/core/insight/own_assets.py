"""The assets of users that stand for tables: which table reports to which asset, and when a report is due.

A report says how healthy the table is and when it was compacted last. A busy table changes all the time, so a report is due at once only
when something happened that a person acts on. Figures alone are reported at most every ten minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.insight.overview import TableOverview
from compaction_pipeline.core.tables.asset_key import asset_key_text
from compaction_pipeline.core.tables.table import TableIdentifier

REFRESH = timedelta(minutes=10)
"""Changed figures are reported this often. A table with a commit every second then leaves 144 events a day, and not 2,880."""

AssetLevels = tuple[str, ...]

_SICK = (HealthStatus.FAILING, HealthStatus.REFUSED)


@dataclass(frozen=True, slots=True)
class OwnAssets:
    """The table of each asset, and a sentence for each table that names an asset in vain."""

    tables: Mapping[AssetLevels, TableIdentifier]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AssetReport:
    """What is reported to an asset. `landed` counts the commits of this program that landed in the table."""

    asset: AssetLevels
    table: TableOverview
    landed: int

    @property
    def is_well(self) -> bool:
        """False when somebody must do something: the table is refused, is held back, or its work fails."""
        return self.table.health not in _SICK and not self.table.is_held_back

    @property
    def told(self) -> tuple[str, str]:
        """Two fingerprints of 8 hex digits.

        The first changes when the table becomes well or unwell, or is compacted. The second changes with any figure or reason.
        """
        table = self.table
        return _digest(self.is_well, self.landed), _digest(table.health.value, table.reason, table.warning, table.metrics)


@dataclass(frozen=True, slots=True)
class LastReport:
    """What was told to an asset the last time, and when."""

    told: tuple[str, str]
    at: datetime


def assign_assets(
    named: Iterable[tuple[TableIdentifier, AssetLevels]], taken: Iterable[AssetLevels], problems: Iterable[str] = ()
) -> OwnAssets:
    """Give each asset its table. When two tables name one asset, the first keeps it. `taken` are assets of this program itself."""
    tables: dict[AssetLevels, TableIdentifier] = {}
    said = list(problems)
    ours = frozenset(taken)
    for table, levels in named:
        key = asset_key_text(levels)
        if levels in ours:
            said.append(f"{table} names the asset {key}, which is one of compaction_pipeline itself: name one of your own")
        elif levels in tables:
            said.append(f"{table} names the asset {key}, which stands for {tables[levels]} already: name another one")
        else:
            tables[levels] = table
    return OwnAssets(tables, tuple(said))


def report_is_due(report: AssetReport, last: LastReport | None, now: datetime) -> bool:
    """Return whether the asset should hear of its table again."""
    if last is None or report.told[0] != last.told[0]:
        return True
    return report.told[1] != last.told[1] and now - last.at >= REFRESH


def _digest(*values: object) -> str:
    return sha256(repr(values).encode()).hexdigest()[:8]
