"""Registration in a group whose team has a limit that cannot be counted without memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compaction_pipeline.core.capacity.team import Limits, Team
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.core.queue.optimizer import Registration
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.services.queue.admit_optimizers import AdmitOptimizers
from compaction_pipeline_tests.builders import NOW

OF_ANT = ResourceGroup("heavy", properties={"team": "ant"})


@pytest.mark.parametrize("limits", [Limits(memory_bytes=8 * 10**9), Limits(gb_hours=3.0)])
def test_an_optimizer_of_a_limited_team_says_its_memory(stores: Stores, limits: Limits) -> None:
    admit = AdmitOptimizers(stores.groups, stores.teams, "1")
    silent = Registration("heavy", "host", "1", "1", MERGE_VERSION, 1)
    stores.groups.add(OF_ANT)
    stores.teams.put(Team("ant", (), Limits(slots=1)), "root", NOW)
    admit.check(silent)
    stores.teams.put(Team("ant", (), limits), "root", NOW)
    with pytest.raises(ConfigError, match="group heavy belongs to team ant, whose memory or GB-hours are limited"):
        admit.check(silent)
    admit.check(replace(silent, memory_bytes=10**9))
    stores.groups.change(replace(OF_ANT, properties={"team": "ant", "memory": "1000000000"}))
    admit.check(silent)
