"""Routes that tell what compaction has cost, how well optimizers are used, and how groups are scaled.

They answer from the state database alone.
"""

from __future__ import annotations

from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query

from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.capacity.costs import CostKey
from compaction_pipeline.core.capacity.ledger import SUMS_KEPT_DAYS
from compaction_pipeline.core.capacity.scaling.action import PastAction
from compaction_pipeline.core.capacity.scaling.observation import KEPT_FOR
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.services.capacity.read_costs import Costs, ReadCosts
from compaction_pipeline.services.capacity.read_scaling import GroupScaling, ReadScaling
from compaction_pipeline.services.capacity.read_use import OptimizerUse, ReadUse

_DRY_RUNS_AT_ONCE = 1
"""So many dry runs of policies are made at a time. One may compute for half a minute, and must not keep heartbeats waiting."""
_Days = Annotated[int, Query(ge=1, le=SUMS_KEPT_DAYS)]
_Hours = Annotated[int, Query(ge=1, le=24 * KEPT_FOR.days)]


def cost_routes(read_costs: ReadCosts, read_use: ReadUse, read_scaling: ReadScaling, guard: Guard) -> APIRouter:
    """The routes below `/api/v1`."""
    routes = APIRouter(tags=["costs"], responses=ANSWERS, dependencies=[Depends(guard.needs(Role.READER))])
    limiter = CapacityLimiter(_DRY_RUNS_AT_ONCE)

    @routes.get("/costs", response_model=None, responses=plain_answer(Costs))
    def costs(by: CostKey = CostKey.TABLE, days: _Days = 7) -> Any:
        """What the attempts of the last UTC days have cost, and what the slots of optimizers did meanwhile."""
        return plain(read_costs.costs(by, days))

    @routes.get("/optimizer-use", response_model=None, responses=plain_answer(list[OptimizerUse]))
    def use() -> Any:
        """How well each optimizer is used, those with the lowest score first, and the command that would use it better."""
        return plain(read_use.uses())

    @routes.get("/scaling", response_model=None, responses=plain_answer(list[GroupScaling]))
    def scaling() -> Any:
        """What groups are to have by their policies of scaling, what is decided now, and what was done, the newest action first."""
        return plain(read_scaling.groups())

    @routes.get("/scaling/{group}/dry-run", response_model=None, responses=plain_answer(list[PastAction]))
    async def scaling_dry_run(group: Annotated[str, Path(max_length=200)], hours: _Hours = 24) -> Any:
        """What the policy of one group would have done in so many hours, as if it were enabled, the oldest first. Nothing is changed."""
        return plain(await to_thread.run_sync(read_scaling.dry_run, group, hours, limiter=limiter))

    return routes
