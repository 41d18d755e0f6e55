"""The whole program over a keyed table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionSpec

from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.queue.assignment import Assignment
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.keyed.written import Keyed
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.reference_reader import Row
from compaction_pipeline_tests.state import new_home

TABLE = TableIdentifier("lake", ("db",), "t")


CHANGE_STORE = TableIdentifier("lake", ("db",), "t_change_")


FULL = PlanRequest(types=(CompactionType.FULL,), force=True)


MAJOR = PlanRequest(types=(CompactionType.MAJOR,), force=True)


def raising(error: Exception) -> Callable[..., object]:
    """A function that raises this error, whatever it is called with."""

    def fail(*arguments: object) -> object:
        raise error

    return fail


class Program:
    """The program over one keyed table. `now` is its clock. `rows` are those that readers must see."""

    def __init__(
        self,
        folder: Path,
        spec: PartitionSpec = PartitionSpec(),
        key: tuple[str, ...] = ("id",),
        catalog: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        """`catalog` are the properties with which the program opens the catalog; those of a SQL catalog by default."""
        self.now = datetime.now(timezone.utc)
        self.keyed = Keyed(folder, key, spec, **options)
        self.services = OpenedServices(
            Settings(home=new_home(folder / "home"), merge_engine="in-process", retry_interval_seconds=0),
            clock=lambda: self.now,
            sleep=lambda seconds: self.pass_time(seconds),
        )
        sql = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/wh"}
        self.services.stores.catalogs.add(CatalogEntry("lake", catalog or sql))
        self.rows: dict[int, Row] = {}

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def upsert(self, *rows: Row) -> None:
        """Write these rows in one transaction, in place of those with the same key."""
        changes = []
        for each in rows:
            if each["id"] in self.rows:
                changes.append(("DELETE", self.rows[each["id"]]))
            self.rows[each["id"]] = each
            changes.append(("INSERT", each))
        self.keyed.write(*changes)

    def delete(self, *ids: int) -> None:
        self.keyed.write(*(("DELETE", self.rows.pop(number)) for number in ids))

    def check(self) -> None:
        self.keyed.check(self.rows.values())

    def allow_change_files(self, count: int) -> None:
        with self.keyed.stores()[0].transaction() as transaction:
            transaction.set_properties({"self-optimizing.max-file-count": str(count)})

    def refresh(self) -> KnownTable:
        self.services.refresh_files.refresh(TABLE)
        return self.services.stores.tables.state(TABLE)

    def figures(self) -> NodeMetrics:
        """The figures of all nodes together, as they are now."""
        self.refresh()
        return self.services.read_tables.table(TABLE).overview.metrics


def merge_planned(program: Program) -> None:
    services = program.services
    while services.serve_tasks.waits(None):
        assignment = services.serve_tasks.poll("worker", None)
        assert isinstance(assignment, Assignment)
        (result,) = InProcessMergeEngine().merge([assignment.merge_input], assignment.file_io)
        assert result.error is None
        services.serve_tasks.complete(assignment.task, result)


MINOR = PlanRequest(types=(CompactionType.MINOR,), force=True)


def change_files(program: Program) -> int:
    return len(program.keyed.stores()[1].inspect.data_files())


def files_of_change_store(program: Program) -> set[str]:
    """The paths of all Parquet files in the folder of the change store."""
    folder = Path(program.keyed.stores()[1].location().removeprefix("file://"))
    return {f"file://{path}" for path in folder.rglob("*.parquet")}
