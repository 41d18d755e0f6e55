"""The one resource: our services, which `bootstrap` wires from the COMPACTION_* settings.

Nothing is opened before it is needed. The first use case opens the state database and the catalogs. The first merge starts Spark,
which takes seconds. The end of the run or tick closes everything. The resource of `dagster-pyspark` would never stop its Spark session,
so `compaction_pipeline.spark.session` starts and stops one of our own.
"""

from __future__ import annotations

from contextlib import ExitStack

import dagster as dg
from pydantic import PrivateAttr

from compaction_pipeline.bootstrap import Services, open_services
from compaction_pipeline.defs.choices import chosen
from compaction_pipeline.defs.refusals import failing_in_words
from compaction_pipeline.ending.dagster_dev import end_run_with_it
from compaction_pipeline.settings import load_settings


def opened_services(holder: str | None = None) -> Services:
    """Return new services of this code location, with the catalogs of the component registered. The caller closes them."""
    choices = chosen()
    services = open_services(load_settings(choices.settings), holder)
    try:
        services.explore_catalogs.declare(choices.catalogs)
    except BaseException:
        services.close()
        raise
    return services


class Compaction(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Gives the services to runs and ticks. The COMPACTION_* variables and the attributes of `CompactionPipeline` configure it.

    The values stand in no field of this resource, because Dagster shows fields on its pages, and a catalog's properties hold secrets.
    """

    _services: Services | None = PrivateAttr(default=None)
    _holder: str | None = PrivateAttr(default=None)
    _run_id: str | None = PrivateAttr(default=None)
    _held: ExitStack = PrivateAttr(default_factory=ExitStack)
    _log: dg.DagsterLogManager | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Give the run a name for others that wait for it, and let it end together with the `dagster dev` that started it."""
        if context.run is not None:
            self._run_id = context.run.run_id
            self._holder = f"Dagster run {context.run.run_id[:8]}"
            self._log = context.log
            end_run_with_it()

    def services(self) -> Services:
        """Return the services of this run or tick. The catalogs of the component are registered.

        Raises ConfigError and StorageUnavailable in a tick, and a failure with the same words in a run.
        """
        if self._services is None:
            if self._log is not None:
                # A database that is locked or far away may take a while, and the page of the run should say so.
                self._log.info("opening the state database")
                with failing_in_words():
                    self._services = opened_services(self._holder)
                    if self._run_id is not None:
                        # Without this lease nobody could tell later that the process of the run was killed.
                        self._held.enter_context(self._services.keep_watch.hold_run(self._run_id))
            else:
                self._services = opened_services()
        return self._services

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close everything that was opened, and stop the Spark session."""
        if self._services is not None:
            self._held.close()
            self._services.close()
            self._services = None
