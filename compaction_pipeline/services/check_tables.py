"""Reads what is new in tables, and then judges them. The command `check` and `compaction_checks_job` do this."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from compaction_pipeline.core.errors import CompactionError, ConfigError, NotFoundError
from compaction_pipeline.core.fragmentation.verdict import NOT_ADMITTED, PlanReasonCode
from compaction_pipeline.core.insight.checks.due_now import LookedAt
from compaction_pipeline.core.insight.checks.every_check import CHECKS, CHECKS_AS_OF_NOW
from compaction_pipeline.core.insight.checks.gate import Checked
from compaction_pipeline.core.insight.overview import NO_CATALOG
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.insight.judge_compaction import JudgeCompaction
from compaction_pipeline.services.one_table import OneTable
from compaction_pipeline.services.planning.plan_tables import PlanTables
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
from compaction_pipeline.services.tables.refresh_files import RefreshFiles


class CheckTables:
    """One verb: check."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        explore_catalogs: ExploreCatalogs,
        refresh_files: RefreshFiles,
        plan_tables: PlanTables,
        one_table: OneTable,
        judge_compaction: JudgeCompaction,
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._explore_catalogs = explore_catalogs
        self._refresh_files = refresh_files
        self._plan_tables = plan_tables
        self._one_table = one_table
        self._judge_compaction = judge_compaction

    def check(
        self, tables: Collection[TableIdentifier] = (), *, refresh: bool = True, as_of_now: bool = False, strict: bool = False
    ) -> Checked:
        """Judge these tables, or all tables of all catalogs when none is named.

        With `refresh` the files of each table are brought up to date first. A table that cannot be read is in the answer, and the others
        are judged. With `as_of_now`, `DUE_NOW` looks at the files of the tables, in the place of the checks that need a history; it also
        looks at tables of catalogs that are only observed. With `strict`, a check without an answer stops a pipeline (`Checked.stopping`).

        Raises ConfigError when no catalog is registered, and when `as_of_now` stands without `refresh`. Raises NotFoundError when a named
        table does not exist.
        """
        if as_of_now and not refresh:
            raise ConfigError(
                "`as of now` is asked for without `refresh`, but it must read what is new in the tables: leave one of them out"
            )
        if not self._catalogs.entries():
            # Without this an empty state database would let every pipeline pass.
            raise ConfigError(NO_CATALOG)
        unread = dict(self._unread(tables)) if refresh else {}
        left_alone = self._judge_compaction.left_alone(tables, observed=not as_of_now)
        looked_at: tuple[LookedAt, ...] = ()
        if as_of_now:
            to_look_at = (table for table in sorted(set(tables or self._tables.seen())) if table not in left_alone)
            looked_at = tuple(LookedAt(table, unread[str(table)]) if str(table) in unread else self._look(table) for table in to_look_at)
        results = self._judge_compaction.judge(CHECKS_AS_OF_NOW if as_of_now else CHECKS, tables, looked_at=looked_at)
        unjudged = self._unjudged(tables, left_alone, as_of_now=as_of_now) if strict else {}
        return Checked(results, unread, left_alone, strict, unjudged)

    def _unjudged(
        self, tables: Collection[TableIdentifier], left_alone: Mapping[TableIdentifier, str], *, as_of_now: bool
    ) -> dict[str, str]:
        """What a strict gate may not pass over: observed tables that only a look as of now judges, and that there is no table at all."""
        if not tables and not self._tables.seen():
            names = ", ".join(entry.name for entry in self._catalogs.entries())
            return {f"catalogs {names}": "they hold no table; correct their warehouse or URI, or leave out --strict"}
        if as_of_now:
            return {}
        however = self._judge_compaction.left_alone(tables, observed=False)
        return {str(table): f"{why}; --as-of-now judges it" for table, why in left_alone.items() if table not in however}

    def _look(self, table: TableIdentifier) -> LookedAt:
        """Decide what is due on a table by its files. A plan of a table that changed just now is made a second time."""
        for _ in range(2):
            try:
                plan = self._plan_tables.due_now(table)
                if plan.reason.code is not PlanReasonCode.BEING_READ:
                    break
                self._one_table.refresh(table)
            except CompactionError as error:
                return LookedAt(table, str(error))
        if plan.reason.code is PlanReasonCode.BEING_READ or plan.reason.code in NOT_ADMITTED:
            return LookedAt(table, plan.reason.text)
        return LookedAt(table, plan.verdicts)

    def _unread(self, tables: Collection[TableIdentifier]) -> Iterator[tuple[str, str]]:
        """Refresh these tables, or all, and yield the catalogs and tables that could not be read, with the reason."""
        if tables:
            for table in tables:
                yield from self._refresh(table)
            return
        explored = self._explore_catalogs.explore()
        for name, why in explored.failed:
            yield f"catalog {name}", why
        for number, one in enumerate(explored.unseen, 1):
            yield f"catalog {one.catalog}, not seen {number}", one.sentence
        unmoved = self._refresh_files.unmoved()
        for table in sorted(self._tables.seen()):
            if table not in unmoved:
                try:
                    yield from self._refresh(table)
                except NotFoundError as error:
                    # It was dropped a moment ago, unless its catalog still lists it. A REST catalog gives the same answer for a table
                    # whose metadata file is missing.
                    if self._is_listed(table):
                        yield str(table), str(error)

    def _refresh(self, table: TableIdentifier) -> Iterator[tuple[str, str]]:
        try:
            refresh = self._one_table.refresh(table)
        except NotFoundError:
            raise
        except CompactionError as error:
            yield str(table), str(error)
            return
        if refresh.error is not None:
            yield str(table), str(refresh.error)
        elif not refresh.complete and self._tables.state(table).refusal is None:
            yield str(table), refresh.problem or "its files were not read to the end, because this process lost its lease; check it again"

    def _is_listed(self, table: TableIdentifier) -> bool:
        try:
            self._explore_catalogs.explore(table.catalog)
        except CompactionError:
            return True
        return table in self._tables.seen()
