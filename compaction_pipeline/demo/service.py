"""The server and the optimizers of `make demo OPTIMIZERS=2`, and which commits came from them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.commit.record import CompactionRecord
from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.demo.options import DemoOptions, child_environment
from compaction_pipeline.demo.pipeline import answers
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.demo.tied import tied

_READY_SECONDS = 120.0
"""A server that is not ready after this time is not worth waiting for."""


def start_service(processes: Processes, options: DemoOptions) -> None:
    """Start the server and, when it is ready, the optimizers; start nothing when no optimizer was asked for.

    Raises CompactionError when the server does not get ready.
    """
    if not options.optimizers:
        return
    _start(processes, options, "serve", ["serve", "--port", str(options.server_port)])
    _wait_until_ready(options, processes.check)
    for number in range(1, options.optimizers + 1):
        # Each merges one task at a time, so that two of them share the work of one small machine.
        command = ["optimizer", "--server", options.server_address, "--parallelism", "1", "--resource-id", f"demo-{number}"]
        _start(processes, options, f"optimizer-{number}", command)


def records_of_optimizers(services: Services, records: Sequence[CompactionRecord]) -> tuple[CompactionRecord, ...]:
    """Those of these records that committed only what optimizers merged."""
    optimizers = {optimizer.optimizer_id for optimizer in services.serve_optimizers.optimizers()}

    def merged_by_optimizers(record: CompactionRecord) -> bool:
        attempts = services.read_records.record(record.record_id).attempts
        owners = [attempts[task_id][-1].owner for task_id in record.committed_task_ids]
        return bool(owners) and set(owners) <= optimizers

    return tuple(record for record in records if merged_by_optimizers(record))


def _start(processes: Processes, options: DemoOptions, name: str, arguments: Sequence[str]) -> None:
    command = [str(Path(sys.executable).with_name("compaction-pipeline")), *arguments]
    log = options.logs / f"{name}.log"
    processes.start(name, tied(command, log), child_environment(options), options.root, log)


def _wait_until_ready(options: DemoOptions, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not answers(f"{options.server_address}/health/ready"):
        check()
        if time.monotonic() > deadline:
            raise CompactionError(f"the server was not ready after {_READY_SECONDS:.0f} s; its log is {options.logs / 'serve.log'}")
        time.sleep(0.5)
