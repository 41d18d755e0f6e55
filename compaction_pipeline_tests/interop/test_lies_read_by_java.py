"""What a lie that is not refused leaves in the table, read by Iceberg's Java code: its manifests, all rows, and a filter on each column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from compaction_pipeline.core.queue.task import TaskStatus
from compaction_pipeline_tests.api.liars import HARMLESS, ROWS, OwnProcess, clean_up, commit, lies_table, merged, row
from compaction_pipeline_tests.services.house import House

pytestmark = pytest.mark.interop

Register = Callable[[str, str, str], Any]
_FILTERS = {
    "id": "id = {0}",
    "name": "name = '{0}'",
    "price": "price = {0}",
    "day": "day = DATE'{0}'",
    "amount": "amount = {0}",
    "key": "key = '{0}'",
    "raw": "raw = X'{0}'",
    "flag": "flag = {0}",
    "count": "count = {0}",
    "region": "region = '{0}'",
}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/wh",
        "init_catalog_tables": "true",
        "catalog-name": f"c{uuid4().hex[:8]}",
    }
    opened = House(tmp_path, properties=properties)
    yield opened
    opened.services.close()


def _in_sql(name: str, value: Any) -> str:
    if name == "raw":
        return str(value.hex())
    if name == "key":
        from uuid import UUID

        return str(UUID(bytes=value))
    return value.isoformat() if isinstance(value, date) else str(value)


@pytest.mark.parametrize("lie", HARMLESS)
def test_java_reads_what_a_harmless_lie_left(house: House, tmp_path: Path, spark_catalog: Register, lie: str) -> None:
    served: Any = SimpleNamespace(house=house)
    lies_table(served)
    door = OwnProcess(served)
    taken = door.take()
    report = merged(taken)
    HARMLESS[lie](report)
    assert door.tell(taken.attempt_id, report) is TaskStatus.PREPARED
    assert commit(served) == ["COMMITTED"]
    clean_up(served)

    name = house.lake.properties["catalog-name"]
    spark = spark_catalog(name, f"{tmp_path}/catalog.db", f"file://{tmp_path}/wh")

    def ids(where: str) -> list[int]:
        return sorted(found["id"] for found in spark.sql(f"SELECT id FROM {name}.db.t WHERE {where}").collect())

    assert ids("true") == list(range(ROWS))
    for number in (0, 1, ROWS - 1):
        for column, text in _FILTERS.items():
            value = row(number)[column]
            wanted = [other for other in range(ROWS) if row(other)[column] == value]
            assert ids(f"{column} IS NULL" if value is None else text.format(_in_sql(column, value))) == wanted, column
    [file] = spark.sql(f"SELECT record_count, readable_metrics FROM {name}.db.t.files").collect()
    assert file["record_count"] == ROWS
    spark.sql(f"CALL {name}.system.rewrite_manifests(table => 'db.t')")
    assert ids("true") == list(range(ROWS))
