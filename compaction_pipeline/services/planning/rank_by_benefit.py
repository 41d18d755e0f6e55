"""Ranks the work that is due in all tables by its benefit for its cost, and says how far a budget reaches. It changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from compaction_pipeline.core.capacity.calibration import Fit
from compaction_pipeline.core.capacity.costs import CostStore
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.planning.benefit import DueNode, RankedNode, ranked
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.services.planning.due_nodes import DueNodes
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
        due_nodes: DueNodes,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._costs = costs
        self._explain = explain
        self._due_nodes = due_nodes
        self._clock = clock

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
                works = self._explain(state.table).tasks
                due += self._due_nodes.of(state, works, partial(_known_fit, fits, state.table))
            except ConfigError:
                raise
            except CompactionError as error:
                unknown[str(state.table)] = str(error)
        return Ranking(budget_gb_hours, ranked(due, budget_gb_hours, self._clock()), unknown)


def _known_fit(fits: Fits, table: TableIdentifier, kind: CompactionType) -> Fit:
    found = fits.of(table, kind)
    if found is None:
        raise ConfigError(
            "no attempt has merged a task in memory of a known size, so no GB-hours can be predicted: start optimizers with --memory, "
            "give their group the property 'memory', or set COMPACTION_RUN_MEMORY for runs, and let them merge something first"
        )
    return found
