"""The one resource: our services, wired by `bootstrap` from COMPACTION_* settings, opened at first use.

Opening is lazy twice: the state database and catalogs at the first call of `services()`, Spark (a JVM of seconds) at the first
merge. Both are closed at the end of the run or tick. `dagster-pyspark`'s resource calls `getOrCreate` and never stops the
session, which is why the session is ours (`compaction_pipeline.spark.session`).
"""

from __future__ import annotations

import dagster as dg
from pydantic import PrivateAttr

from compaction_pipeline.bootstrap import Services, open_services
from compaction_pipeline.ending.dagster_dev import end_run_with_it
from compaction_pipeline.settings import load_settings


class Compaction(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Compaction's services. Nothing to configure here: the same COMPACTION_* variables rule every door."""

    _services: Services | None = PrivateAttr(default=None)
    _holder: str | None = PrivateAttr(default=None)

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Name the run to others that must wait for it, and let it end with the `dagster dev` that started it."""
        if context.run is not None:
            self._holder = f"Dagster run {context.run.run_id[:8]}"
            end_run_with_it()

    def services(self) -> Services:
        """The services of this run or tick. Raises ConfigError, StorageUnavailable."""
        if self._services is None:
            self._services = open_services(load_settings(), self._holder)
        return self._services

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close what was opened, the Spark session included."""
        if self._services is not None:
            self._services.close()
            self._services = None
