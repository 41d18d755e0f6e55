"""Whether Spark runs in this process. Unlike the rest of `spark/`, this imports no PySpark, which takes a CPU-second."""

from __future__ import annotations

import sys


def runs_in_this_process() -> bool:
    """Whether a classic session runs here, whoever has started it."""
    pyspark = sys.modules.get("pyspark")
    context = getattr(pyspark, "SparkContext", None)
    return context is not None and context._active_spark_context is not None
