"""Takes the events of catalogs, and lets the tables be looked at that they name. No event is believed, and a lost one costs nothing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.tables.catalog_events import report_of
from compaction_pipeline.core.tables.commit_report import CommitReport
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.tables.take_reports import TakeReports

log = logging.getLogger(__name__)

_MOST_TOLD = 20


@dataclass(frozen=True, slots=True)
class TakenEvents:
    """How many tables are looked at because of these events, and how many events were left out, with the first reasons."""

    tables: int
    left_out: int
    why: tuple[str, ...] = ()


class TakeEvents:
    """One verb: take."""

    def __init__(self, catalogs: CatalogStore, take_reports: TakeReports) -> None:
        self._catalogs = catalogs
        self._take_reports = take_reports

    def take(self, catalog: str, events: Sequence[object]) -> TakenEvents:
        """Take events of this catalog, in their order. Of several commits to one table the last one counts: one look answers all.

        Raises NotFoundError when the catalog is not registered, and StorageUnavailable when a table is not known and the catalog does not
        list its tables now; the sender may send the events again.
        """
        properties = self._catalogs.entry(catalog).properties
        newest: dict[TableIdentifier, CommitReport] = {}
        why: list[str] = []
        for event in events:
            report = report_of(event, catalog, properties)
            if isinstance(report, str):
                why.append(report)
            else:
                newest[report.table] = report
        looks = 0
        for report in newest.values():
            try:
                taken = self._take_reports.take(report)
            except NotFoundError as error:
                why.append(str(error))
                continue
            if taken.accepted:
                looks += 1
            else:
                why.append(f"{report.table}: {taken.why}")
        log.debug("catalog=%s events=%d tables=%d", catalog, len(events), looks)
        return TakenEvents(looks, len(why), tuple(why[:_MOST_TOLD]))
