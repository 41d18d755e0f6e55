"""Jobs of a single op, which is what all jobs of the program are: an empty step costs seconds."""

from __future__ import annotations

import dagster as dg

from compaction_pipeline.defs.names import GROUP, Names


def op_job(names: Names, name: str, op: dg.OpDefinition, description: str) -> dg.JobDefinition:
    """A job that runs this op in its own process: Spark works in parallel already."""

    @dg.job(name=names.of(name), executor_def=dg.in_process_executor, tags={"compaction/group": GROUP}, description=description)
    def job() -> None:
        op()

    return job
