"""The transactions that have begun, as both stores of a table tell them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.demo.row_delta import row_delta
from compaction_pipeline.iceberg.keyed.append import begin_overwrite
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline.iceberg.keyed.transactions import begun_transactions, ended_by_base, read_open_transactions
from compaction_pipeline_tests.keyed.change_logs import ChangeLog, row


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(tmp_path)


def open_now(log: ChangeLog, after: timedelta = timedelta(0)) -> list[int]:
    """The numbers of the transactions that are open when this much time has passed."""
    change, base = log.change.refresh().metadata, log.base.refresh().metadata
    found = read_open_transactions(change, base, log.change_files(), log.base_files(), datetime.now(timezone.utc) + after)
    return [each.transaction_id for each in found]


def test_a_begun_transaction_is_open_until_its_changes_land(log: ChangeLog) -> None:
    log.commit(log.changes(1, "I", 0, [(row(1), 1)]))
    first, second = log.begin(), log.begin()
    assert (first, second) == (2, 3)
    assert open_now(log) == [first, second]
    log.commit(log.changes(1, "I", second, [(row(2), 1)]))
    assert open_now(log) == [first]


def test_the_begin_of_an_overwrite_is_told_from_others_and_is_open_too(log: ChangeLog) -> None:
    first = log.begin()
    second = begin_overwrite(load_stores(log.catalog, ("db", "t")))
    assert open_now(log) == [first, second]
    found = begun_transactions(log.change.refresh().metadata)
    assert [(each.transaction_id, each.brings_changes) for each in found] == [(first, True), (second, False)]


def test_a_begun_transaction_is_given_up_after_the_timeout(log: ChangeLog) -> None:
    first = log.begin()
    assert open_now(log, timedelta(minutes=59)) == [first]
    assert open_now(log, timedelta(minutes=61)) == []
    with log.base.transaction() as transaction:
        transaction.set_properties({"compaction.transaction.timeout": "7200000"})
    assert open_now(log, timedelta(minutes=61)) == [first]


def test_base_rows_and_base_snapshots_end_a_transaction(log: ChangeLog) -> None:
    first, second = log.begin(), log.begin()
    log.commit_base(log.base_rows(1, first, [row(1)]))
    assert open_now(log) == [second]
    row_delta(log.base, properties={"txId": str(second)})
    assert ended_by_base(log.base.refresh().metadata) == {second}
    assert open_now(log) == []


def test_a_transaction_whose_begin_snapshot_is_expired_is_not_known(log: ChangeLog) -> None:
    log.begin()
    expired = log.change.refresh().current_snapshot()
    log.begin()
    assert expired is not None
    log.change.refresh().maintenance.expire_snapshots().by_id(expired.snapshot_id).commit()
    assert [each.transaction_id for each in begun_transactions(log.change.refresh().metadata)] == [2]
    assert open_now(log) == [2]
