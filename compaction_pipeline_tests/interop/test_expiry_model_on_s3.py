"""The model test of expiry on a real REST catalog and a real S3, both behind proxies that fail as servers do. Java is the judge of rows.

STEPS in all (default 80). After each step that deleted files, Iceberg's Java library reads every ref and every snapshot that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.upkeep.record import UpkeepStatus
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.listing import files_under
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.iceberg.reached import avro_records
from compaction_pipeline_tests.interop.racing import Say
from compaction_pipeline_tests.real_services.fault_proxy import Drop, Fault, FaultProxy, Lost, Status, Truncate
from compaction_pipeline_tests.real_services.lake import PATIENT, ServedLake
from compaction_pipeline_tests.real_services.servers import RestCatalogServer, S3Server
from compaction_pipeline_tests.scenarios.test_expiry_model import Machine, run_model
from compaction_pipeline_tests.services.house import House

pytestmark = [pytest.mark.interop, pytest.mark.timeout(0)]

_COMMIT = "^POST .*/tables/t$"
_WEATHER: tuple[tuple[str, Fault, float], ...] = (
    ("", Status(503, "<Error><Code>SlowDown</Code></Error>"), 0.1),
    ("", Drop(reset=True), 0.05),
    ("^GET", Truncate(), 0.1),
    ("^DELETE|^POST .*delete", Lost(), 0.3),
    ("^POST .*delete", Status(501, "<Error><Code>NotImplemented</Code></Error>"), 0.5),
)


class ServedHouse(House):
    """The program on servers, which it reaches through the proxies of the lake."""

    def __init__(self, folder: Path, s3: S3Server, rest: RestCatalogServer) -> None:
        self._servers = (s3, rest)
        super().__init__(folder)
        services = self.services
        services.__dict__["_catalogs"] = Catalogs(lambda name: services.stores.catalogs.entry(name), PATIENT)

    def built_lake(self, folder: Path, properties: Mapping[str, str] | None) -> Lake:
        return ServedLake(folder, *self._servers)

    @property
    def product_properties(self) -> Mapping[str, str]:
        return self.served.product_properties

    @property
    def served(self) -> ServedLake:
        assert isinstance(self.lake, ServedLake)
        return self.lake


class ServedMachine(Machine):
    """The history of one table on servers."""

    servers: ClassVar[tuple[S3Server, RestCatalogServer]]
    spark: ClassVar[Any]
    scans: ClassVar[list[int]]
    shrinks = False

    def built(self) -> House:
        return ServedHouse(self.home, *self.servers)

    def files(self) -> set[str]:
        table = self.reloaded()
        return {urlsplit(path).path for path in files_under(table.io, table.location()) if not path.endswith(".metadata.json")}

    def needed(self) -> set[str]:
        """A REST catalog drops a tag that was made a moment ago, and the files of its snapshot stay for ever."""
        needed, table = super().needed(), self.table.table
        kept = (one for one in self.house.services.expire_snapshots.records(None, 999) if one.status is UpkeepStatus.KEPT)
        for snapshot in (snapshot for record in kept for snapshot in record.removed):
            assert snapshot.manifest_list is not None
            manifests = [manifest["manifest_path"] for manifest in avro_records(table, snapshot.manifest_list)]
            live = [one["data_file"]["file_path"] for path in manifests for one in avro_records(table, path) if one["status"] != 2]
            needed |= {urlsplit(path).path for path in (snapshot.manifest_list, *manifests, *live)}
        return needed

    def remember(self) -> None:
        super().remember()
        there = self.files()
        if getattr(self, "there", there) - there:
            self.check_with_java()
        self.there = there

    def check_with_java(self) -> None:
        """Read every snapshot that is left, and the snapshot of every ref."""
        name, metadata = self.served.java_table(self.spark, self.table), self.reloaded().metadata
        places = {str(one.snapshot_id): one.snapshot_id for one in metadata.snapshots}
        places |= {f"'{ref}'": one.snapshot_id for ref, one in metadata.refs.items()}
        for place, snapshot_id in places.items():
            rows = self.spark.sql(f"SELECT id, name FROM {name} VERSION AS OF {place}").collect()
            assert sorted((("id", row["id"]), ("name", row["name"])) for row in rows) == self.rows[snapshot_id], place
        self.scans.append(len(places))

    # ---- faults of servers in place of those that the model makes itself -------------------------------------------------

    def compact(self, rng: Random) -> None:
        self.in_weather(rng, lambda: super(ServedMachine, self).compact(rng))

    def expire(self, rng: Random) -> None:
        self.in_weather(rng, lambda: super(ServedMachine, self).expire(rng))

    def clean_up(self, rng: Random) -> None:
        self.in_weather(rng, lambda: super(ServedMachine, self).clean_up(rng))

    def lose_the_answer(self, rng: Random) -> None:
        self.with_fault(self.served.catalog_proxy, _COMMIT, Lost())

    def lose_the_request(self, rng: Random) -> None:
        self.with_fault(self.served.catalog_proxy, _COMMIT, rng.choice((Drop(), Status(503, "{}"), Status(504, "{}"))))

    def with_fault(self, proxy: FaultProxy, pattern: str, fault: Fault) -> None:
        real = self.stores.remove
        with proxy.fault(pattern, fault, times=1):
            self.expire_with(lambda *given: real(*given))

    def in_weather(self, rng: Random, act: Callable[[], None]) -> None:
        """Do it while S3 fails in some way, or in none. A run that fails is gone on with by a later one."""
        rules = [self.served.s3_proxy.add(pattern, fault, probability=often) for pattern, fault, often in _WEATHER if rng.random() < 0.3]
        try:
            act()
        except CompactionError:
            assert rules, "a run failed in fine weather"
        finally:
            self.served.s3_proxy.take_away(*rules)

    @property
    def served(self) -> ServedLake:
        assert isinstance(self.house, ServedHouse)
        return self.house.served

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "table"):
            self.served.__exit__()


def test_on_servers_that_fail_expiry_deletes_nothing_that_can_be_reached_and_leaves_nothing_else(
    s3: S3Server, rest_catalog: RestCatalogServer, iceberg_spark: Any, say: Say
) -> None:
    scans: list[int] = []
    machine = type("Served", (ServedMachine,), {"servers": (s3, rest_catalog), "spark": iceberg_spark, "scans": scans})
    done = run_model(machine, steps=80)
    say(f"Java read {sum(scans)} snapshots and refs after {len(scans)} deletions")
    assert {"expire", "compact", "append"} <= done.keys()
    assert scans
