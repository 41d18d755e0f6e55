"""The names of definitions that no prefix stands before, as `compaction_pipeline.definitions` has them in tests."""

from __future__ import annotations

from compaction_pipeline.defs.names import Names

NAMES = Names()
DELTA_FILES = NAMES.delta_files
TABLE_HEALTH = NAMES.table_health
TABLE_FIGURES = NAMES.table_figures
COMPACTED_FILES = NAMES.compacted_files
COMPACTION_RECORDS = NAMES.compaction_records
COMPACTION_QUEUES = NAMES.compaction_queues
WAITING_JOBS = NAMES.waiting_jobs
COMPACTION_CAPACITY = NAMES.compaction_capacity
OPTIMIZERS = NAMES.optimizers
