"""What a reused Spark worker does between two tasks, made cheap: it took a quarter of a CPU-second a task. And what it keeps for the next.

Spark's worker collects garbage after every task, over all the modules that ours imported (`pyspark/daemon.py`), and has Python read
again every zip archive of its path before the next one (`importlib.invalidate_caches`): PySpark's own, of a thousand modules.
"""

from __future__ import annotations

import gc
import sys
from functools import cache
from zipimport import zipimporter

from compaction_pipeline.merging.deletes.shared_deletes import SharedDeletes


@cache
def shared_deletes() -> SharedDeletes:
    """What the tasks of this worker hand on to each other; gone with the worker, which Spark ends after a minute of rest."""
    return SharedDeletes()


def rest() -> None:
    """Call at the end of a task, in Spark's worker only."""
    _freeze()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            # Made anew when a module is looked for, from the directory that Python keeps of the archive.
            del sys.path_importer_cache[path]


@cache
def _freeze() -> None:
    """Once: modules live as long as the process; to look through them frees nothing."""
    gc.collect()
    gc.freeze()
