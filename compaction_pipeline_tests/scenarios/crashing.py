"""A process that compacts a table, logs every step of the protocol, and kills itself at one of them.

A step is a write to the state database, a file that a merge writes, a manifest, a manifest list, a metadata file, the swap of
the catalog's pointer, a step that a use case announces, or a report to Dagster. Most have a "before" and an "after".
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import dagster as dg

from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.definitions import defs
from compaction_pipeline.defs import resources
from compaction_pipeline.foundations import utc_now
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.merging.reading.file_access import FileAccess
from compaction_pipeline.settings import Settings
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.scenarios.modelled_table import ModelledTable
from compaction_pipeline_tests.services.serving import serving

WRITES = {
    "index": ("add", "save", "save_figures"),
    "planning": ("save", "save_verdicts"),
    "commits": ("note_landed", "note_failure", "mark_done"),
    "files": ("apply",),
    "tasks": ("insert", "poll", "complete", "claim", "commit", "fail", "unclaim"),
    "records": ("save", "mark_mirrored"),
    "leases": ("acquire", "release"),
}
"""Every method of a store that writes, except `renew`, which a thread calls beside the protocol."""

REQUEST = PlanRequest(types=(CompactionType.MINOR,), force=True)

OnStep = Callable[[str], None]


def open_at(home: Path, later: timedelta = timedelta(0), on_step: OnStep = lambda step: None) -> OpenedServices:
    """Services on the state database in `home`. They merge in this process, and their clock is ahead by `later`."""

    def clock() -> datetime:
        return utc_now() + later

    settings = Settings(home=home / "state", merge_engine="in-process", task_slots=2)
    return OpenedServices(settings, clock=clock, sleep=lambda seconds: None, on_step=on_step, late=timedelta(0))


def compact_until(home: str, name: str | None, occurrence: int, table: TableIdentifier = ModelledTable.identifier) -> None:
    """Compact the table and mirror the record. Each step is written to a file.

    The process kills itself with SIGKILL when it reaches the step `name` for the n-th time (`occurrence`); None means never.
    """
    folder = Path(home)
    seen: Counter[str] = Counter()

    def on_step(step: str) -> None:
        seen[step] += 1
        with (folder / "steps").open("a") as log:
            log.write(step + "\n")
        if step == name and seen[step] == occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    services = open_at(folder, on_step=on_step)
    stores = open_stores(services.settings.state_database_url)
    services.__dict__["_stores"] = Stores(**{store: _Told(getattr(stores, store), store, on_step) for store in Stores.__slots__})
    with _told_files(on_step):
        services.compact_tables.compact(table, REQUEST)
        mirror(folder, services, on_step)


LATER = timedelta(minutes=5)
"""After this time every lease of a killed process has ended."""


def recovered(home: Path, table: TableIdentifier = ModelledTable.identifier) -> OpenedServices:
    """Do what later ticks, runs or commands do: end leases, drain the queue, compact, clean up, mirror."""
    services = open_at(home, LATER)
    services.keep_watch.keep()
    if services.stores.tables.states():
        services.compact_tables.carry_out({}, serving(until=lambda: False, linger=timedelta(0)))
    services.compact_tables.compact(table, REQUEST)
    services.maintain_tables.remove_leftovers(table)
    mirror(home, services)
    return services


def mirror(home: Path, services: OpenedServices, on_step: OnStep = lambda step: None) -> None:
    """Tick `commit_sensor` twice. As Dagster's daemon does, store the events of a tick first, and then its cursor.

    The second tick marks the records that the first one has reported.
    """
    sensor = defs.get_repository_def().get_sensor_def("commit_sensor")
    cursor = home / "cursor"
    # Dagster copies the resource for each tick, and the copy would open services of its own. The patch gives it ours.
    with mock.patch.object(resources, "open_services", return_value=services), instance_at(home) as instance:
        for _ in range(2):
            text = cursor.read_text() if cursor.exists() else None
            with dg.build_sensor_context(
                instance=instance, repository_def=defs.get_repository_def(), cursor=text, resources={"compaction": resources.Compaction()}
            ) as context:
                result = sensor(context)
            assert isinstance(result, dg.SensorResult)
            on_step("before telling Dagster")
            for event in result.asset_events:
                instance.report_runless_asset_event(event)
            on_step("after telling Dagster")
            cursor.write_text(result.cursor or "")
            on_step("after remembering what was told")


def instance_at(home: Path) -> dg.DagsterInstance:
    """Dagster's own storage, kept in `home`."""
    (home / "dagster").mkdir(exist_ok=True)
    return dg.DagsterInstance.local_temp(str(home / "dagster"))


def told_records(home: Path) -> list[str]:
    """The ids of the records that Dagster has events for."""
    with instance_at(home) as instance:
        events = instance.fetch_materializations(dg.AssetKey("compaction_records"), limit=100).records
        found = []
        for event in events:
            materialization = event.asset_materialization
            assert materialization is not None
            found += [str(value.value) for name, value in materialization.metadata.items() if name == "record"]
    return found


def steps_of(home: Path) -> list[str]:
    """The steps that the last process in `home` logged, in order."""
    return (home / "steps").read_text().splitlines()


class _Told:
    """A store that announces each write before and after it."""

    def __init__(self, store: Any, name: str, on_step: OnStep) -> None:
        self._store = store
        self._name = name
        self._on_step = on_step

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._store, method)
        if method not in WRITES.get(self._name, ()):
            return found

        def told(*arguments: Any, **named: Any) -> Any:
            self._on_step(f"before {self._name}.{method}")
            answer = found(*arguments, **named)
            self._on_step(f"after {self._name}.{method}")
            return answer

        return told


@contextmanager
def _told_files(on_step: OnStep) -> Iterator[None]:
    """Announce each file that a merge writes, and each metadata file."""
    plain_output, plain_metadata = FileAccess.output, SqlCatalog._write_metadata

    @contextmanager
    def output(self: FileAccess, path: str) -> Iterator[Any]:
        on_step("before merged file")
        inner: AbstractContextManager[Any] = plain_output(self, path)
        with inner as stream:
            yield stream
        on_step("after merged file")

    def write_metadata(*arguments: Any, **named: Any) -> None:
        on_step("before metadata file")
        plain_metadata(*arguments, **named)
        on_step("after metadata file")

    FileAccess.output = output  # type: ignore[method-assign]
    SqlCatalog._write_metadata = staticmethod(write_metadata)  # type: ignore[method-assign]
    try:
        yield
    finally:
        FileAccess.output = plain_output  # type: ignore[method-assign]
        SqlCatalog._write_metadata = staticmethod(plain_metadata)  # type: ignore[method-assign]


PROTOCOL = (
    # refresh
    "before leases.acquire",
    "after leases.acquire",
    "before index.add",
    "after index.add",
    "before index.save",
    "after index.save",
    "before files.apply",
    "after files.apply",
    "before index.save_figures",
    "after index.save_figures",
    "before leases.release",
    "after leases.release",
    # plan
    "before tasks.insert",
    "after tasks.insert",
    "before planning.save",
    "after planning.save",
    "before planning.save_verdicts",
    "after planning.save_verdicts",
    # claim and merge
    "before tasks.poll",
    "after tasks.poll",
    "claimed",
    "before merged file",
    "after merged file",
    "merged",
    "before tasks.complete",
    "after tasks.complete",
    "prepared",
    # record
    "before tasks.claim",
    "after tasks.claim",
    "claimed-for-commit",
    "before records.save",
    "after records.save",
    "record-opened",
    # commit
    "before-load",
    "after-load",
    "after-validation",
    "before-manifest",
    "after-manifest",
    "before-manifest-list",
    "after-manifest-list",
    "before-swap",
    "before metadata file",
    "after metadata file",
    "after-swap",
    "committed-in-table",
    "before commits.note_landed",
    "after commits.note_landed",
    "before tasks.commit",
    "after tasks.commit",
    "tasks-committed",
    "before commits.mark_done",
    "after commits.mark_done",
    "record-closed",
    # mirror
    "before records.mark_mirrored",
    "after records.mark_mirrored",
    "before telling Dagster",
    "after telling Dagster",
    "after remembering what was told",
)
