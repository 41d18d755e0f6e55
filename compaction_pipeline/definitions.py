"""The Dagster code location: collects `defs/`, nothing else.

Loading it opens no database, no catalog and no JVM.
"""

from __future__ import annotations

from compaction_pipeline.defs.location import definitions

defs = definitions()
