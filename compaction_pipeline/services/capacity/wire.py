"""Builds the use cases of what compaction costs and may cost, each on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.services.capacity.manage_teams import ManageTeams
    from compaction_pipeline.services.capacity.meter_own_work import MeterOwnWork
    from compaction_pipeline.services.capacity.read_costs import ReadCosts
    from compaction_pipeline.services.capacity.read_scaling import ReadScaling
    from compaction_pipeline.services.capacity.read_use import ReadUse
    from compaction_pipeline.services.capacity.scale_groups import ScaleGroups
    from compaction_pipeline.services.capacity.send_notices import SendNotices


class CapacityServices(Wiring):
    """The use cases of what compaction costs and may cost."""

    @cached_property
    def read_costs(self) -> ReadCosts:
        from compaction_pipeline.services.capacity.read_costs import ReadCosts

        return ReadCosts(self._stores.costs, self._stores.groups, self.clock)

    @cached_property
    def meter_own_work(self) -> MeterOwnWork:
        from compaction_pipeline.services.capacity.meter_own_work import MeterOwnWork

        stores = self._stores
        return MeterOwnWork(stores.costs, stores.teams, stores.catalogs, stores.tables, self.clock, self._spent)

    @cached_property
    def read_use(self) -> ReadUse:
        from compaction_pipeline.services.capacity.read_use import ReadUse

        stores = self._stores
        return ReadUse(stores.optimizers, stores.costs, stores.groups, self.clock, self._settings.low_use, self._containers)

    @cached_property
    def send_notices(self) -> SendNotices:
        from compaction_pipeline.services.capacity.send_notices import SendNotices

        stores = self._stores

        def owners() -> frozenset[str]:
            return frozenset(owner for team in stores.teams.teams() for owner in team.owners)

        return SendNotices(stores.notices, self._notice_sender, self._settings.notices_file, self.clock, owners)

    @cached_property
    def manage_teams(self) -> ManageTeams:
        from compaction_pipeline.services.capacity.manage_teams import KnownTargets, ManageTeams

        stores = self._stores
        return ManageTeams(
            stores.teams, KnownTargets(stores.tables, stores.catalogs, stores.groups), self.read_use, self.clock, self._new_id
        )

    @cached_property
    def read_scaling(self) -> ReadScaling:
        from compaction_pipeline.services.capacity.read_scaling import ReadScaling

        stores = self._stores
        return ReadScaling(stores.groups, stores.scaling, stores.notices, self._containers, self.clock)

    @cached_property
    def scale_groups(self) -> ScaleGroups:
        from compaction_pipeline.services.capacity.scale_groups import ScaleGroups

        stores, own = self._stores, (self.clock, self._new_id)
        return ScaleGroups(stores.groups, stores.optimizers, stores.queues, stores.costs, stores.scaling, self._containers, own)
