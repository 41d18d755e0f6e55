"""What the program shows of records."""

from __future__ import annotations

import pytest

from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline_tests.defs.values import ORDERS, record
from compaction_pipeline_tests.services.insight.desk import Desk


def test_records_of_an_unknown_table_are_an_error_and_those_of_a_dropped_one_are_shown(desk: Desk) -> None:
    with pytest.raises(NotFoundError, match=r"table lake\.shop\.orders is not known"):
        desk.records.records(ORDERS)
    desk.table(ORDERS)
    assert desk.records.records(ORDERS) == ()
    done = record()
    desk.stores.records.save(done)
    desk.stores.index.forget(ORDERS)
    assert desk.records.records(ORDERS) == (done,)
    with pytest.raises(NotFoundError, match="'nowhere' is not registered"):
        desk.records.records(TableIdentifier("nowhere", ("shop",), "orders"))


def test_a_record_is_found_by_a_beginning_that_fits_one(desk: Desk) -> None:
    for name in ("abc1", "abd2"):
        desk.stores.records.save(record(name))
    assert desk.records.record("abc").record.record_id == "abc1"
    assert desk.records.record("abd2").tasks == ()
    for unclear in ("ab", "zz", ""):
        with pytest.raises(NotFoundError):
            desk.records.record(unclear)
