"""The ReportStore: the reports of commits that no look at their tables has answered yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Row, delete, select

from compaction_pipeline.core.tables.commit_report import CommitReport, ReportedTable, with_report
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.storage import schema
from compaction_pipeline.storage.engine import lock, upsert, writing
from compaction_pipeline.storage.sql_store import SqlStore

_report = schema.commit_report.c


class SqlReportStore(SqlStore):
    """Reports of commits in the state database."""

    def add(self, report: CommitReport, now: datetime) -> ReportedTable:
        identifier = str(report.table)
        with writing(self._engine) as connection:
            # The first two reports of a table have no row yet that could be locked.
            lock(connection, f"report {identifier}")
            row = connection.execute(select(schema.commit_report).where(_report.identifier == identifier)).first()
            before = None if row is None else _of(row)
            reported = with_report(before, report, now)
            if reported != before:
                values = {column.name: getattr(reported, column.name) for column in _report if column.name != "identifier"}
                row_of_table = upsert(connection, schema.commit_report).values(identifier=identifier, **values)
                connection.execute(row_of_table.on_conflict_do_update(index_elements=["identifier"], set_=values))
        return reported

    def reported(self) -> Sequence[ReportedTable]:
        return tuple(sorted(map(_of, self._rows(select(schema.commit_report))), key=lambda one: one.table))

    def answer(self, reported: ReportedTable) -> bool:
        # Each further report counts `reports` up, or begins anew with another time.
        same = (
            _report.identifier == str(reported.table),
            _report.since == reported.since,
            _report.reports == reported.reports,
            _report.snapshot_id == reported.snapshot_id,
        )
        return self._write(delete(schema.commit_report).where(*same)) == 1


def _of(row: Row[tuple[object, ...]]) -> ReportedTable:
    values = dict(row._mapping)
    return ReportedTable(TableIdentifier.parse(values.pop("identifier")), **values)
