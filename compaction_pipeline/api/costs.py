"""A route that tells what compaction has cost. It answers from the state database alone."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.capacity.ledger import SUMS_KEPT_DAYS
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.services.capacity.read_costs import Costs, ReadCosts

_Days = Annotated[int, Query(ge=1, le=SUMS_KEPT_DAYS)]


def cost_routes(read_costs: ReadCosts, guard: Guard) -> APIRouter:
    """The route below `/api/v1`."""
    routes = APIRouter(tags=["costs"], responses=ANSWERS, dependencies=[Depends(guard.needs(Role.READER))])

    @routes.get("/costs", response_model=None, responses=plain_answer(Costs))
    def costs(by: CostKey = CostKey.TABLE, days: _Days = 7) -> Any:
        """What the attempts of the last UTC days have cost, and what the slots of optimizers did meanwhile."""
        return plain(read_costs.costs(by, days))

    return routes
