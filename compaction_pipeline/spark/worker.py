"""Saves work that a reused Spark worker does between two tasks (a quarter of a CPU-second), and keeps what its next task can use.

After every task, Spark's worker collects garbage over all modules that we imported (`pyspark/daemon.py`). Before the next task it makes
Python read every zip archive of its path again (`importlib.invalidate_caches`). PySpark's own archive holds a thousand modules.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter

from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes


@cache
def shared_deletes() -> SharedDeletes:
    """What the tasks of this worker share. Spark ends a worker after a minute without tasks, and this ends with it."""
    return SharedDeletes()


def tidy_up_after_task() -> None:
    """Call this at the end of a task. It is meant for Spark's workers only."""
    _freeze()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            # Python creates the importer again when it next looks for a module. It keeps the archive's directory for that.
            del sys.path_importer_cache[path]


@cache
def _freeze() -> None:
    """This runs once. Modules live as long as the process, so searching them for garbage frees nothing."""
    gc.collect()
    gc.freeze()
