"""Every request to a catalog on PostgreSQL ends within its limits, also when the server is suspended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import event, text
from sqlalchemy.engine import make_url

from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.planning.plan import PlanRequest
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.catalogs import bounded_psycopg2
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.catalogs.sql_catalog import BoundedSqlCatalog
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.postgres import stopped

pytestmark = pytest.mark.postgres

LIMITS = RequestLimits(connect_seconds=2, read_seconds=1, commit_seconds=1.5)


@pytest.fixture
def properties(postgres_url: str, tmp_path: Path) -> dict[str, str]:
    return {"type": "sql", "uri": postgres_url, "warehouse": f"file://{tmp_path}/wh", "init_catalog_tables": "true"}


@pytest.fixture
def lake(properties: dict[str, str], tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path, properties=properties, limits=LIMITS)
    yield lake
    opened(lake).engine.dispose()


def opened(lake: Lake) -> BoundedSqlCatalog:
    assert isinstance(lake.catalog, BoundedSqlCatalog)
    return lake.catalog


def test_a_stopped_server_is_reported_within_the_limit_and_used_again_when_it_goes_on(lake: Lake, postgres_url: str) -> None:
    table = lake.table()
    with stopped(postgres_url), pytest.raises(StorageUnavailable, match=r"did not answer: .*PostgreSQL did not answer within 1 s"):
        lake.catalogs.load(table.identifier)
    assert lake.catalogs.tables("lake") == (table.identifier,)


def test_a_catalog_is_opened_within_the_limit_or_not_at_all(properties: dict[str, str], lake: Lake, postgres_url: str) -> None:
    fresh = Catalogs(lambda name: CatalogEntry(name, {**properties, "init_catalog_tables": "false"}), LIMITS)
    with stopped(postgres_url), pytest.raises(StorageUnavailable, match=r"catalog 'lake' did not answer: .*timeout expired"):
        fresh.tables("lake")


def test_limits_that_the_address_sets_stay(properties: dict[str, str], tmp_path: Path) -> None:
    uri = make_url(properties["uri"]).update_query_dict({"connect_timeout": "7"}).render_as_string(hide_password=False)
    lake = Lake(tmp_path, properties={**properties, "uri": uri}, limits=LIMITS)
    with opened(lake).engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert driver is not None
        told = driver.get_dsn_parameters()
        assert connection.execute(text("SELECT 1")).scalar() == 1
    assert (told["connect_timeout"], told["keepalives_idle"], told["tcp_user_timeout"]) == ("7", "2", "1000")
    opened(lake).engine.dispose()


def test_an_answer_that_comes_in_time_leaves_the_connection_open(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table()
    started: list[float] = []
    timer = bounded_psycopg2.threading.Timer

    def noted(seconds: float, act: Callable[[], None]) -> object:
        started.append(seconds)
        return timer(seconds, act)

    monkeypatch.setattr(bounded_psycopg2.threading, "Timer", noted)
    before = opened(lake).engine.pool.status()
    lake.catalogs.load(table.identifier)
    assert started
    assert opened(lake).engine.pool.status() == before


def test_a_commit_whose_answer_never_comes_is_unknown_and_found_when_the_server_goes_on(
    properties: dict[str, str], postgres_url: str, tmp_path: Path
) -> None:
    """When the committer gives up, the request is in the server's socket. The server carries it out when it goes on."""
    settings = Settings(home=tmp_path / "home", merge_engine="in-process", connect_seconds=2, read_seconds=1, commit_seconds=1.5)
    services = OpenedServices(settings, sleep=lambda seconds: None)
    services.stores.catalogs.add(CatalogEntry("lake", properties))
    catalog = services.catalogs.catalog("lake")
    assert isinstance(catalog, BoundedSqlCatalog)
    lake = Lake(tmp_path, properties=properties)
    table = lake.table()
    row_delta(table.table, table.one_row_files({"id": one, "name": f"n{one}"} for one in range(12)))
    services.explore_catalogs.explore()
    commits: list[object] = []
    with ExitStack() as stack:

        @event.listens_for(catalog.engine, "commit")
        def stop(connection: object) -> None:
            if not commits:
                stack.enter_context(stopped(postgres_url))
            commits.append(connection)

        unknown = services.compact_tables.compact(table.identifier, PlanRequest(force=True))
        assert [record.status for record in unknown.records] == [RecordStatus.UNKNOWN]
        assert "PostgreSQL did not answer within 1.5 s" in unknown.reason
    services.compact_tables.compact(table.identifier, PlanRequest())
    [record] = services.stores.records.records(table.identifier)
    assert record.status is RecordStatus.COMMITTED
    assert table.live_ids() == list(range(12))
    services.close()
    catalog.engine.dispose()
    opened(lake).engine.dispose()
