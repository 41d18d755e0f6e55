"""Runs `compact` on a table on real services while a fault lasts, and collects what a person sees and what is left on storage.

The course is always the same. `compact` and `table list` run while the fault lasts. An hour later the fault is gone and `compact`
runs again. A day later upkeep runs. Nothing really waits: a sleep only moves the product's clock on, and so does the test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from compaction_pipeline.cli.main import app
from compaction_pipeline.formats.file_io.object_io import immutable_files
from compaction_pipeline.foundations import utc_now
from compaction_pipeline.iceberg.catalogs import rest_catalog
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.settings import Settings
from compaction_pipeline.storage import engine
from compaction_pipeline.storage.stores import open_stores
from compaction_pipeline_tests.iceberg.lake import LakeTable
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.real_services.lake import PATIENT, ServedLake
from compaction_pipeline_tests.reference_reader import MOUNTS, bag_difference, entries_of, manifests_of, metadata_of
from compaction_pipeline_tests.scenarios.soundness import faults


class Scene:
    """A table of small files on real services, the product's command line, and a clock that the test moves on."""

    def __init__(self, lake: ServedLake) -> None:
        self.lake = lake
        self.passed = timedelta(0)
        self.limits = PATIENT
        self.table: LakeTable = lake.table()
        for first in range(0, 18, 3):
            self.table.ids(*range(first, first + 3))
        self.table.delete_ids(4, 16)
        self.rows = self.table.rows()
        self._mend: list[Callable[[], object]] = []

    # ---- the fault ---------------------------------------------------------------------------------------------------

    @property
    def commit(self) -> str:
        """The pattern of the requests that commit to the table."""
        return f"^POST .*/{self.lake.namespace}/tables/t$"

    def give_up_after(self, seconds: float, *, commits_only: bool = False) -> None:
        """Let requests to the catalog time out after this time until `mend` is called. Use it for requests that hang anyway."""
        others = PATIENT.read_seconds if commits_only else seconds
        self.limits = RequestLimits(connect_seconds=PATIENT.connect_seconds, read_seconds=others, commit_seconds=seconds)

    def then_mended_by(self, action: Callable[[], object]) -> None:
        """Register an action for `mend`, which runs it after it has removed every rule of the proxies."""
        self._mend.append(action)

    def stored(self, path: str) -> Path:
        """The local file of an object of the table."""
        prefix, folder = next((prefix, folder) for prefix, folder in MOUNTS.items() if path.startswith(prefix))
        return Path(folder, path.removeprefix(prefix))

    def damage(self, path: str, content: Callable[[bytes], bytes] | None) -> None:
        """Replace the bytes of an object, or remove it when the function returns None. `mend` restores it."""
        file = self.stored(path)
        before = file.read_bytes()
        if content is None:
            file.unlink()
        else:
            file.write_bytes(content(before))
        self.then_mended_by(lambda: file.write_bytes(before))

    def change_catalog(self, key: str, value: str) -> None:
        """Change a property of the registered catalog."""
        stores = open_stores(f"sqlite:///{self.lake.home}/state.db")
        [entry] = stores.catalogs.entries()
        stores.catalogs.replace(replace(entry, properties={**entry.properties, key: value}))
        stores.close()

    # ---- the product -------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return utc_now() + self.passed

    def pass_time(self, seconds: float) -> None:
        self.passed += timedelta(seconds=seconds)

    def services(self, settings: Settings) -> OpenedServices:
        made = OpenedServices(settings, clock=self.now, sleep=self.pass_time)
        made.__dict__["_catalogs"] = Catalogs(lambda name: made.stores.catalogs.entry(name), self.limits)
        return made

    def type(self, *arguments: str) -> Any:
        """Run a command. Returns its JSON and its exit code."""
        environment = {"COMPACTION_HOME": str(self.lake.home), "COMPACTION_MERGE_ENGINE": "in-process"}
        with self._quickly():
            result = CliRunner(env=environment).invoke(app, [*arguments, "--json"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return json.loads(result.stdout) if result.stdout else {}, result.exit_code

    def add_catalog(self) -> None:
        options = [part for key, value in self.lake.product_properties.items() for part in ("-p", f"{key}={value}")]
        _, code = self.type("catalog", "add", "lake", *options)
        assert code == 0

    def maintain(self) -> None:
        with self._quickly():
            services = self.services(Settings(home=self.lake.home, merge_engine="in-process"))
            services.maintain_tables.maintain()
            services.close()

    @contextmanager
    def _quickly(self) -> Iterator[None]:
        # In reality every command is a process of its own. It has read no file before, and does not know which catalog was silent.
        immutable_files.clear()
        with (
            mock.patch("compaction_pipeline.bootstrap.Services", self.services),
            mock.patch.object(engine, "BUSY_TIMEOUT_SECONDS", 1),
            mock.patch.dict(rest_catalog._silent_until, clear=True),
        ):
            yield

    def mend(self) -> None:
        self.limits = PATIENT
        self.lake.catalog_proxy.take_away()
        self.lake.s3_proxy.take_away()
        for action in self._mend:
            action()

    # ---- checks --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that every row is as before, and that the metadata is sound."""
        assert bag_difference(self.table.rows(), self.rows) == ""
        assert faults(self.table.table) == []

    def unlisted(self) -> Sequence[str]:
        """The files in the table's folder that no snapshot lists, as `data` or `metadata`. Metadata JSON files belong to the catalog."""
        self.table.table.refresh()
        metadata = metadata_of(self.table.table)
        listed = {self.stored(snapshot["manifest-list"]) for snapshot in metadata["snapshots"]}
        for snapshot in metadata["snapshots"]:
            for manifest in manifests_of(snapshot):
                listed.add(self.stored(manifest["manifest_path"]))
                listed.update(self.stored(entry.path) for entry in entries_of(manifest))
        folder = self.stored(self.table.table.location())
        here = {path for path in folder.rglob("*") if path.is_file() and path.suffix in (".parquet", ".avro")}
        return sorted(path.parent.name for path in here - listed)


@dataclass(frozen=True)
class Seen:
    """The observations of one fault. Its texts hold placeholders for everything that differs from run to run."""

    exit_code: int
    reason_code: str
    reason: str
    state: str
    left: str
    again: str
    left_at_last: str


@dataclass(frozen=True)
class Fault:
    """A fault: its name, and a function that causes it."""

    name: str
    comes: Callable[[Scene], object] = field(repr=False)


def course(scene: Scene, fault: Fault) -> Seen:
    """Cause the fault, run the whole course, and return the observations."""
    scene.add_catalog()
    fault.comes(scene)
    first, code = scene.type("compact", str(scene.table.identifier), "--type", "major")
    listed, _ = scene.type("table", "list")
    [state] = [one for one in listed if one["table"] == str(scene.table.identifier)] or [{"health": "unknown", "reason": None}]
    scene.mend()
    scene.check()
    left = _counted(scene.unlisted())
    scene.pass_time(3600)
    again, again_code = scene.type("compact", str(scene.table.identifier), "--type", "major")
    scene.check()
    scene.pass_time(25 * 3600)
    scene.maintain()
    scene.check()
    return Seen(
        exit_code=code,
        reason_code=first["reason_code"],
        reason=stable(first["reason"] or "", scene),
        state=f"{state['health']}: {stable(state['reason'], scene)}" if state["reason"] else state["health"],
        left=left,
        again=_result(again, again_code, scene),
        left_at_last=_counted(scene.unlisted()),
    )


def stable(text: str, scene: Scene) -> str:
    """The text with placeholders for ports, ids, times and folders, which differ from run to run."""
    text = " ".join(text.split())
    text = text.replace(scene.lake.namespace, "db").replace(str(scene.lake.home), "HOME")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID", text)
    text = re.sub(r"127[.]0[.]0[.]1[:', (port=)]*\d+", "127.0.0.1:PORT", text)
    text = re.sub(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b", "ID", text)
    text = re.sub(r"(?<=-)[0-9a-f]{8}(?=-)", "ID", text)
    text = re.sub(r"\b\d+ bytes", "N bytes", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?([.]\d+)?( UTC|Z|[+]00:00)?", "TIME", text)
    text = re.sub(r"\b\d\d:\d\d:\d\d UTC", "TIME", text)
    text = re.sub(r"\d+([.]\d+)? ?(ms|s|seconds)\b", r"N \2", text)
    return re.sub(r"\b\d{8,}\b", "ID", text)


def _result(answer: Any, code: int, scene: Scene) -> str:
    what = f"{answer['committed']} of {answer['tasks']} committed"
    return f"exit {code}, {what}" + (f": {stable(answer['reason'], scene)}" if answer["reason"] else "")


def _counted(folders: Sequence[str]) -> str:
    counts = [f"{folders.count(name)} in `{name}/`" for name in sorted(set(folders))]
    return ", ".join(counts) or "nothing"
