"""The two resources: our services, which `bootstrap` wires from the COMPACTION_* settings, and the Spark session that merges run on.

Nothing is opened before it is needed. The first use case opens the state database and the catalogs. The first merge opens the Spark
session, which takes seconds. The end of the run or tick closes everything that was opened here. A project may put a resource of its own
in the place of `pyspark`: the `LazyPySparkResource` of `dagster-pyspark`, or anything with a `spark_session`.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from typing import Any, ClassVar, TypeVar, cast

import dagster as dg
from pydantic import PrivateAttr

from compaction_pipeline.bootstrap import Services, open_services
from compaction_pipeline.defs.choices import Choices
from compaction_pipeline.defs.names import Names
from compaction_pipeline.defs.refusals import failing_in_words
from compaction_pipeline.ending.dagster_dev import end_run_with_it

R = TypeVar("R", bound=dg.ConfigurableResource[Any])

Context = dg.AssetExecutionContext | dg.OpExecutionContext | dg.SensorEvaluationContext

PYSPARK = "pyspark"
"""The key of the resource with the Spark session. All sets of definitions of a process share it, because a process has one JVM."""


def opened_services(choices: Choices, holder: str | None = None) -> Services:
    """Return new services, with the catalogs of the component and of the file registered. The caller closes them."""
    services = open_services(choices.load_settings(), holder)
    try:
        services.manage_catalogs.apply(choices.catalogs)
    except BaseException:
        services.close()
        raise
    return services


class SparkOfSettings(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The Spark session that COMPACTION_SPARK_MASTER or COMPACTION_SPARK_REMOTE names. It starts at the first use, and the run stops it.

    The settings stand in no field of this resource, because Dagster shows fields on its pages.
    """

    choices: ClassVar[Choices] = Choices()
    _services: Services | None = PrivateAttr(default=None)

    @property
    def spark_session(self) -> Any:
        """The session. Merges of the same run use it too. Raises ConfigError, StorageUnavailable."""
        if self._services is None:
            self._services = open_services(self.choices.load_settings())
        return self._services.spark_session()

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Stop the session, if it was started here."""
        if self._services is not None:
            self._services.close()
            self._services = None


def _refuse_without_partition(names: Names, run: dg.DagsterRun, log: dg.DagsterLogManager | None) -> None:
    """Raise a failure for a run that was launched to compact or commit, but for no partition.

    Dagster does not see to it when a program launches the run, and would say so only when the run has got its place in the pool.
    """
    asked = sorted(key.path[-1] for key in (run.asset_selection or ()) if key in (names.compacted_files, names.compaction_records))
    if not asked or run.is_partitioned:
        return
    what = "nodes, whose keys stand on the page of `table_health`" if "compacted_files" in asked else "tables, such as lake.shop.orders"
    sentence = f"the run is to materialize {' and '.join(asked)}, but names no partition: launch it again for partitions; they are {what}"
    if log is not None:
        # Dagster puts its own words before those of a failure of a resource.
        log.error(sentence)
    raise dg.Failure(sentence, allow_retries=False)


class Compaction(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Gives the services to runs and ticks. The COMPACTION_* variables and the attributes of `CompactionPipeline` configure it.

    The values stand in no field of this resource, because Dagster shows fields on its pages, and a catalog's properties hold secrets.
    """

    choices: ClassVar[Choices] = Choices()
    names: ClassVar[Names] = Names()
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
            _refuse_without_partition(self.names, context.run, context.log)

    def services(self) -> Services:
        """Return the services of this run or tick. The catalogs of the component are registered.

        Raises ConfigError and StorageUnavailable in a tick, and a failure with the same words in a run.
        """
        if self._services is None:
            if self._log is not None:
                # A database that is locked or far away may take a while, and the page of the run should say so.
                self._log.info("opening the state database")
                with failing_in_words():
                    self._services = opened_services(self.choices, self._holder)
                    if self._run_id is not None:
                        # Without this lease nobody could tell later that the process of the run was killed.
                        self._held.enter_context(self._services.run_leases.hold(self._run_id))
            else:
                self._services = opened_services(self.choices)
        return self._services

    def merging(self, pyspark: Any) -> Services:
        """Return the services of a run that merges. `pyspark` is the resource of this name. Its session is opened at the first merge.

        Raises a failure for a resource without a `spark_session`, and like `services`.
        """
        services = self.services()
        if isinstance(pyspark, SparkOfSettings):
            return services
        # Asking the resource itself would open a session that may never be needed.
        if not hasattr(type(pyspark), "spark_session") and "spark_session" not in getattr(pyspark, "__dict__", {}):
            raise dg.Failure(
                f"the resource 'pyspark' is {type(pyspark).__name__}, which has no 'spark_session': give it a LazyPySparkResource of "
                "dagster-pyspark or something else with a Spark session, or leave it out",
                allow_retries=False,
            )
        if services.open_spark is None:
            services.merge_on(lambda: pyspark.spark_session)
        return services

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Close everything that was opened, and stop the Spark session if it was started here."""
        if self._services is not None:
            self._held.close()
            self._services.close()
            self._services = None


def with_choices(resource: type[R], **chosen: object) -> R:
    """Such a resource with these values in the place of its class variables.

    Dagster makes a new resource of the same class for each run and tick, from its fields alone. So the values stand in a class of their
    own, which Dagster's pages call like the given one.
    """
    inner = {"__module__": resource.__module__, "__qualname__": resource.__qualname__, "__doc__": resource.__doc__}
    made: type[R] = cast("Any", type(resource))(resource.__name__, (resource,), {**inner, **chosen})
    return made()


@cache
def spark_of_settings(chosen: tuple[tuple[str, object], ...]) -> SparkOfSettings:
    """The resource for these chosen settings of Spark. It is the same one each time: Dagster refuses two resources under one key."""
    return with_choices(SparkOfSettings, choices=Choices(dict(chosen)))


def services_of(names: Names, context: Context) -> Services:
    """The services of this run or tick (`Compaction.services`)."""
    compaction: Compaction = getattr(context.resources, names.compaction)
    return compaction.services()


def merging_services(names: Names, context: Context) -> Services:
    """The services of a run that merges (`Compaction.merging`)."""
    compaction: Compaction = getattr(context.resources, names.compaction)
    return compaction.merging(getattr(context.resources, PYSPARK))
