"""Builds the use cases of readiness and of the dependency center, each on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.core.dependencies.center.figures import CenterFigures
    from compaction_pipeline.services.dependencies.center import DependencyCenter
    from compaction_pipeline.services.dependencies.convert_project import ConvertProject
    from compaction_pipeline.services.dependencies.definitions import Definitions
    from compaction_pipeline.services.dependencies.detect_tables import DetectTables
    from compaction_pipeline.services.dependencies.facts_set_aside import FactsSetAside
    from compaction_pipeline.services.dependencies.forecast import ForecastJobs
    from compaction_pipeline.services.dependencies.lead_center import LeadCenter
    from compaction_pipeline.services.dependencies.lineage import ReadLineage
    from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
    from compaction_pipeline.services.dependencies.repair import RepairJobs
    from compaction_pipeline.services.dependencies.start_jobs import StartJobs
    from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness
    from compaction_pipeline.services.dependencies.why import Why


class DependencyServices(Wiring):
    """The use cases of readiness and of the dependency center."""

    @cached_property
    def read_readiness(self) -> ReadReadiness:
        from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness

        return ReadReadiness(self._stores.catalogs, self._facts_reader, self._stores.dependencies, self.clock)

    @cached_property
    def tell_readiness(self) -> TellReadiness:
        from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness

        return TellReadiness(self.read_readiness, self._stores.dependencies, self.clock)

    @cached_property
    def _definitions(self) -> Definitions:
        from compaction_pipeline.services.dependencies.definitions import Definitions

        return Definitions(self._stores.center)

    @cached_property
    def read_lineage(self) -> ReadLineage:
        from compaction_pipeline.services.dependencies.lineage import ReadLineage

        return ReadLineage(self._stores.center, self._definitions, self._stores.catalogs, self._read_sql, self.clock)

    @cached_property
    def forecast_jobs(self) -> ForecastJobs:
        from compaction_pipeline.services.dependencies.forecast import ForecastJobs

        return ForecastJobs(self._stores.center_runs, self._definitions, self.clock)

    @cached_property
    def repair_jobs(self) -> RepairJobs:
        from compaction_pipeline.services.dependencies.repair import RepairJobs

        return RepairJobs(self.center, self._definitions, self.clock)

    @cached_property
    def center(self) -> DependencyCenter:
        from compaction_pipeline.services.dependencies.center import DependencyCenter

        return DependencyCenter(self._stores.center, self._definitions, self.clock, self.read_lineage.drafted)

    @cached_property
    def convert_project(self) -> ConvertProject:
        from compaction_pipeline.services.dependencies.convert_project import ConvertProject

        return ConvertProject(self._stores.center, self._definitions, self.clock)

    def why(self, job: str, biz: str, origin: str) -> Why:
        """What an instance waits for, and when that is expected. Raises as `DependencyCenter.why`."""
        return self.forecast_jobs.explain(self.center.why(job, biz, origin))

    def center_figures(self) -> CenterFigures:
        """How the dependency center does now."""
        return self._stores.center_figures.figures(self.clock())

    @cached_property
    def facts_set_aside(self) -> FactsSetAside:
        from compaction_pipeline.services.dependencies.facts_set_aside import FactsSetAside

        return FactsSetAside(self._stores.center)

    @cached_property
    def lead_center(self) -> LeadCenter:
        from compaction_pipeline.services.dependencies.lead_center import LeadCenter

        return LeadCenter(self._stores.center, self._definitions, self._leases)

    @cached_property
    def detect_tables(self) -> DetectTables:
        from compaction_pipeline.services.dependencies.detect_tables import DetectTables

        return DetectTables(self._stores.center, self.read_readiness, self.clock)

    @cached_property
    def start_jobs(self) -> StartJobs:
        from compaction_pipeline.services.dependencies.start_jobs import StartJobs

        return StartJobs(self.center, self.clock)
