"""Jobs of a single op, which is what all jobs of the program are: an empty step costs seconds."""

from __future__ import annotations

from collections.abc import Callable

import dagster as dg

from compaction_pipeline.defs.names import GROUP, POOL, Names
from compaction_pipeline.defs.resources import PYSPARK


def op_job(
    names: Names, name: str, step: Callable[..., None], step_description: str, description: str, *, merges: bool = False
) -> dg.JobDefinition:
    """A job that runs this function as an op in its own process: Spark works in parallel already.

    The op has the function's name. One that `merges` needs Spark, and a place in the pool.
    """
    op = dg.op(
        name=names.of(step.__name__),
        description=step_description,
        out=dg.Out(dg.Nothing),
        required_resource_keys={names.compaction, PYSPARK} if merges else {names.compaction},
        pool=POOL if merges else None,
    )(step)

    @dg.job(name=names.of(name), executor_def=dg.in_process_executor, tags={"compaction/group": GROUP}, description=description)
    def job() -> None:
        op()

    return job
