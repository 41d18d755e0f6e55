"""What each child of a crash test inherits from the process that forks it: the modules, and Dagster's migrations."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline_tests.once import read_migrations_once
from compaction_pipeline_tests.scenarios import crashing

__all__ = ["crashing"]

read_migrations_once()
with dg.DagsterInstance.ephemeral():
    # Its databases have been compared with the newest migration, so all of them are read.
    pass
