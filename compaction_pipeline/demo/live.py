"""`make demo`: writers commit every few seconds, Dagster runs with all sensors, and the tables are shown every 10 s."""

from __future__ import annotations

import time
from datetime import datetime

from compaction_pipeline.core.words import count_text
from compaction_pipeline.demo.options import DemoOptions
from compaction_pipeline.demo.pipeline import open_services, register_catalog, start_dagster, start_payments, start_writer, ui_answers
from compaction_pipeline.demo.processes import Processes
from compaction_pipeline.demo.service import start_service
from compaction_pipeline.demo.tables import TABLES
from compaction_pipeline.demo.watch import Watch, clock_title

_SHOW_SECONDS = 10.0


def run_live(options: DemoOptions) -> None:
    """Run until Stopped is raised. By then every process has ended."""
    services = open_services(options)
    try:
        register_catalog(services, options)
    finally:
        services.close()
    watch = Watch(options)
    # The process that starts last is stopped first. So writers start last, and the end of other processes cuts off no commit of theirs.
    with Processes() as processes:
        start_dagster(processes, options)
        start_service(processes, options)
        for table in TABLES.values():
            start_writer(processes, options, table.name)
        start_payments(processes, options)
        watch.say(f"Dagster is starting, and its log is {options.logs / 'dagster.log'}. Ctrl-C ends everything.")
        if options.optimizers:
            optimizers = count_text(options.optimizers, "optimizer")
            watch.say(f"{optimizers} and their server are starting; the pages of the server are at {options.server_address}/docs.")
        announced = False
        shown = 0.0
        while True:
            processes.check()
            if not announced and ui_answers(options):
                announced = True
                watch.say(f"\nOpen {options.health_page} to see how the tables stand; its links launch compactions.")
                watch.say(f"Open {options.waiting_page} to see an asset that waits for each day of events.\n")
            if time.monotonic() - shown >= _SHOW_SECONDS:
                watch.show(clock_title(datetime.now()))
                shown = time.monotonic()
            time.sleep(1)
