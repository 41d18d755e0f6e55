"""Ranks the work that is due in all tables by its benefit for its cost, and says how far a budget reaches. It changes nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from compaction_pipeline.core.capacity.calibration import Fit
from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.planning.benefit import DueNode, RankedNode, ranked
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.policies import inherited
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.properties import properties_or_defaults
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.services.planning.fits import Fits


@dataclass(frozen=True, slots=True)
class Ranking:
    """The due nodes of all tables in their order. `unknown` says of tables why nothing is known of their work."""

    budget_gb_hours: float
    nodes: Sequence[RankedNode]
    unknown: dict[str, str]


class RankByBenefit:
    """One verb: rank."""

    def __init__(
        self,
        reader: TableReader,
        costs: CostStore,
        explain: Callable[[TableIdentifier], CompactionPlan],
        catalogs: CatalogStore,
    ) -> None:
        self._reader = reader
        self._costs = costs
        self._explain = explain
        self._catalogs = catalogs

    def rank(self, budget_gb_hours: float, table: TableIdentifier | None = None) -> Ranking:
        """Rank the nodes of all tables that are known, or of one of them, as they were read last.

        Raises NotFoundError for an unknown table. Raises ConfigError when nothing was ever merged with a known reserve, so that no cost can
        be predicted.
        """
        states = [self._reader.state(table)] if table is not None else self._reader.states()
        due: list[DueNode] = []
        unknown: dict[str, str] = {}
        fits = Fits(self._costs)
        for state in states:
            try:
                due += self._due(state, fits)
            except ConfigError:
                raise
            except CompactionError as error:
                unknown[str(state.table)] = str(error)
        return Ranking(budget_gb_hours, ranked(due, budget_gb_hours), unknown)

    def _due(self, state: KnownTable, fits: Fits) -> Iterator[DueNode]:
        of_table = state.layout.properties if state.layout is not None else {}
        of_catalog = inherited(self._catalogs.entry(state.table.catalog).properties, state.policies)
        weight = properties_or_defaults(of_table, of_catalog).read_weight
        by_node: dict[tuple[TableNode, CompactionType], list[Work]] = defaultdict(list)
        for work in self._explain(state.table).tasks:
            by_node[work.node, work.type].append(work)
        for (node, kind), works in by_node.items():
            known = _known(fits.of(state.table, kind))
            cost = sum(known.gb_hours(work.bytes_read) or 0.0 for work in works)
            yield DueNode(state.table, node, kind, len(works), weight * sum(work.gain for work in works), cost, known.error)


def _known(found: Fit | None) -> Fit:
    if found is None:
        raise ConfigError(
            "no attempt has merged a task in memory of a known size, so no GB-hours can be predicted: start optimizers with --memory, "
            "give their group the property 'memory', or set COMPACTION_RUN_MEMORY for runs, and let them merge something first"
        )
    return found
