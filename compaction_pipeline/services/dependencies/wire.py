"""Builds the use cases of readiness, each on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from compaction_pipeline.services.wiring import Wiring

if TYPE_CHECKING:
    from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
    from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness


class DependencyServices(Wiring):
    """The use cases of readiness."""

    @cached_property
    def read_readiness(self) -> ReadReadiness:
        from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness

        return ReadReadiness(self._stores.catalogs, self._facts_reader, self._stores.dependencies, self.clock)

    @cached_property
    def tell_readiness(self) -> TellReadiness:
        from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness

        return TellReadiness(self.read_readiness, self._stores.dependencies, self.clock)
