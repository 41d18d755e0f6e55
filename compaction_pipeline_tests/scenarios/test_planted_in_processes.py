"""Planted secrets are in no argument of a process, no log and no file of a server whose optimizers merge over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import psutil
import pytest

from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.settings import Settings
from compaction_pipeline_tests.iceberg.lake import Lake
from compaction_pipeline_tests.opened import OpenedServices
from compaction_pipeline_tests.planted import found_in, found_in_files, planted
from compaction_pipeline_tests.rest_catalog import Call, rest_server
from compaction_pipeline_tests.scenarios.deployed import Processes, committed, small_table, wait_until, write

pytestmark = pytest.mark.scenario

TOKEN, KEY, VENDED = (planted(name) for name in ("Token", "SecKey", "Vended"))
SECRETS = (TOKEN, KEY, VENDED)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    deployed = Processes(tmp_path / "home", LAKE_TOKEN=TOKEN)
    yield deployed
    deployed.kill_all()


def test_a_server_and_its_optimizer_show_no_secret(tmp_path: Path, processes: Processes) -> None:
    home = tmp_path / "home"
    (tmp_path / "lake").mkdir()
    lake = Lake(tmp_path / "lake")
    services = OpenedServices(Settings(home=home, merge_engine="in-process"))
    seen: set[str] = set()

    def look() -> bool:
        """Note the arguments of all processes that this test started, as `ps` shows them."""
        for process in psutil.Process().children(recursive=True):
            try:
                seen.add(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return committed(services) >= 2

    with rest_server(lake.catalog) as server:
        server.table_config = {"s3.session-token": VENDED}
        properties = {"type": "rest", "uri": server.uri, "token": "env:LAKE_TOKEN", "s3.secret-access-key": KEY}
        services.stores.catalogs.add(CatalogEntry("lake", properties))
        table = small_table(lake, services)
        write(table, Random(1), Counter(), 14)
        lost = [1]

        def echo(call: Call) -> None:
            lost.pop()
            call.carry_out()
            call.answer(503, {"error": {"message": f"{TOKEN} {KEY} {VENDED}", "type": "EchoException", "code": 503}})

        server.commits = [echo]
        settings = {"COMPACTION_SENSOR_INTERVAL_SECONDS": "1", "COMPACTION_LOG_LEVEL": "DEBUG"}
        processes.serve(**settings)
        processes.optimizer("--group", "default", COMPACTION_LOG_LEVEL="DEBUG", LAKE_TOKEN="")
        wait_until(lambda: look() or committed(services) >= 1, "a commit whose answer was lost is settled")
        write(table, Random(2), Counter({1: 1}), 14)
        wait_until(look, "another commit")
        assert not lost
    assert any(" serve " in one for one in seen)
    assert any(" optimizer " in one for one in seen)
    assert found_in("\n".join(seen), SECRETS) == set()
    assert found_in_files(home, SECRETS) == {}
    logs = "\n".join(path.read_text(errors="replace") for path in tmp_path.glob("*.log"))
    assert "EchoException: *** *** ***" in logs
    assert found_in(logs, SECRETS) == set()
    services.close()
