"""The resource of our services, in the hand of a test: runs and ticks use services of which a test has put parts of its own in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.defs.resources import Compaction, with_choices
from compaction_pipeline_tests.plain_names import NAMES
from compaction_pipeline_tests.services.in_hand import InHand, take_in_hand


class _HeldCompaction(Compaction):
    """Lets a test prepare the services of each run and tick before they are used."""

    prepare: ClassVar[Callable[[Services], None]]

    def services(self) -> Services:
        opened = self._services is not None
        services = super().services()
        if not opened:
            type(self).prepare(services)
        return services


def prepared(prepare: Callable[[Services], None]) -> Mapping[str, Any]:
    """The resources for a run whose services this function prepares."""
    return {NAMES.compaction: with_choices(_HeldCompaction, prepare=staticmethod(prepare))}


def in_hand(part: str, take: Callable[[InHand], None]) -> Mapping[str, Any]:
    """The resources for a run that has a part of its services, such as `serve_tasks`, in the hand of a test. `take` gets that part."""
    return prepared(lambda services: take_in_hand(services, part, take))
