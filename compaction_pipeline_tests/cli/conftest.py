"""Fixtures of a command line with its own state database, catalog and tables. Merges run in this process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField
from typer.testing import CliRunner, Result

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.cli.main import app
from compaction_pipeline.core.tables.data_file import FileContent, OutputFile
from compaction_pipeline.core.work.merge_input import MergeInput
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.core.work.work import Work
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.demo.write_files import write_parquet_file
from compaction_pipeline.iceberg.catalogs import SqlCatalog
from compaction_pipeline.merging.engine import InProcessMergeEngine
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.copied_files import copied_file
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.services.in_hand import InHand, take_in_hand
from compaction_pipeline_tests.state import new_home

TABLE = "lake.shop.orders"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "bucket", IntegerType(), required=False))
BY_BUCKET = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "bucket"))


@dataclass
class Desk:
    """A lake, and methods that run commands as a person does."""

    folder: Path
    lake: SqlCatalog
    preparations: list[Callable[[Services], None]] = field(default_factory=list)

    def hold(self, part: str, take: Callable[[InHand], None]) -> None:
        """Let `take` have a part of the services of each later command, such as `plan_tables`, in its hand."""
        self.preparations.append(lambda services: take_in_hand(services, part, take))

    def _opened(self, settings: Settings) -> Services:
        services = OpenedServices(settings)
        for prepare in self.preparations:
            prepare(services)
        return services

    def type(self, *arguments: str, **environment: str | None) -> Result:
        """Run a command. It must not raise any exception except SystemExit."""
        result = CliRunner(env=environment).invoke(app, list(arguments), obj=self._opened)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result

    @contextmanager
    def meanwhile(self, action: Callable[[], object]) -> Iterator[None]:
        """Call a function after the first merge, before that merge is reported."""
        actions = [action]

        class Engine(InProcessMergeEngine):
            def merge(self, tasks: Sequence[MergeInput[Work]], file_io: Mapping[str, str]) -> Iterator[MergeResult]:
                results = list(super().merge(tasks, file_io))
                if actions:
                    actions.pop()()
                yield from results

        def take(services: Services) -> None:
            services.engine_override = Engine()

        self.preparations.append(take)
        try:
            yield
        finally:
            self.preparations.remove(take)

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Run a command with --json. Its stdout must be exactly one JSON value."""
        result = self.type(*arguments, "--json")
        assert result.exit_code == code, result.output
        return json.loads(result.stdout)

    def add_catalog(self, *more: str) -> Result:
        return self.type("catalog", "add", "lake", *self.catalog_options, *more)

    @property
    def catalog_options(self) -> tuple[str, ...]:
        return ("-p", "type=sql", "-p", f"uri=sqlite:///{self.folder}/catalog.db", "-p", f"warehouse=file://{self.folder}/warehouse")

    def table(self, files: int = 12, buckets: tuple[int, ...] = (0, 1), name: str = "orders", **properties: str) -> Table:
        """Create a table with `files` small files of one row in each bucket. The ids are unique."""
        table = self.lake.create_table(f"shop.{name}", SCHEMA, partition_spec=BY_BUCKET, properties=properties)
        self.append(table, files, buckets)
        return table

    def append(self, table: Table, files: int, buckets: tuple[int, ...] = (0,), first: int = 0) -> None:
        """Commit `files` small files in each bucket."""
        row_delta(table, data=[self._file(table, first + number, bucket) for number in range(files) for bucket in buckets])

    def _file(self, table: Table, number: int, bucket: int) -> OutputFile:
        name = f"data-{number}-{bucket}"

        def write() -> OutputFile:
            rows = pa.table({"id": pa.array([number * 10 + bucket], pa.int64()), "bucket": pa.array([bucket], pa.int32())})
            return write_parquet_file(table, rows, content=FileContent.DATA, partition=Record(bucket), name=name)

        return copied_file(table, name, (number, bucket), write)

    def delete(self, table: Table, bucket: int, row_id: int) -> None:
        """Commit one equality delete by id."""
        ids = pa.table({"id": pa.array([row_id], pa.int64())})
        output = write_parquet_file(
            table, ids, content=FileContent.EQUALITY_DELETES, equality_ids=(1,), partition=Record(bucket), name=f"delete-{row_id}"
        )
        row_delta(table, equality_deletes=[(output, (1,))])

    def ids(self, table: Table) -> list[int]:
        """The ids that a reader sees. Use it only for a table without delete files."""
        return sorted(table.refresh().scan().to_arrow()["id"].to_pylist())


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("COMPACTION_HOME", str(new_home(tmp_path / "home")))
    monkeypatch.setenv("COMPACTION_MERGE_ENGINE", "in-process")
    lake = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    lake.create_namespace("shop")
    ours = logging.getLogger("compaction_pipeline")
    level, handlers = ours.level, list(ours.handlers)
    yield Desk(tmp_path, lake)
    ours.setLevel(level)
    ours.handlers[:] = handlers
    lake.close()
