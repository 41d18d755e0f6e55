"""Which begun transactions may still bring changes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import FileContent, LiveFile
from compaction_pipeline.core.tables.keyed.transactions import (
    BegunTransaction,
    carried_transactions,
    open_transactions,
    transaction_timeout,
)

_NOW = datetime(2026, 11, 23, 12, tzinfo=timezone.utc)


def begun(number: int, minutes_ago: int = 1) -> BegunTransaction:
    return BegunTransaction(number, _NOW - timedelta(minutes=minutes_ago))


def file(name: str, sequence: int, content: FileContent = FileContent.DATA) -> LiveFile:
    return LiveFile(f"wh/{name}.parquet", content, 0, (), 10, 1, sequence)


def test_a_transaction_is_open_until_a_file_or_a_base_snapshot_names_it() -> None:
    assert open_transactions([begun(7), begun(3), begun(5)], {5, 9}, _NOW) == (begun(3), begun(7))


def test_a_transaction_is_given_up_after_an_hour() -> None:
    assert open_transactions([begun(3, 60), begun(5, 59)], (), _NOW) == (begun(5, 59),)
    assert open_transactions([begun(3, 60)], (), _NOW, timedelta(hours=2)) == (begun(3, 60),)


def test_files_carry_the_transactions_of_their_names() -> None:
    base = [file("4-B-3-00000-0-1-00001", 1), file("part-1", 2), file("4-PD-8-00000-0-1-00002", 3, FileContent.POSITION_DELETES)]
    changes = [file("4-I-5-00000-0-1-00001", 9), file("4-ED-0-00000-0-1-00001", 6), file("part-2", 7)]
    assert carried_transactions(base, changes) == {0, 3, 5, 6, 7}


@pytest.mark.parametrize(
    ("text", "expected"), [(None, timedelta(hours=1)), ("1", timedelta(milliseconds=1)), ("7200000", timedelta(hours=2))]
)
def test_the_timeout_is_an_hour_or_what_the_property_says(text: str | None, expected: timedelta) -> None:
    assert transaction_timeout({} if text is None else {"compaction.transaction.timeout": text}) == expected


@pytest.mark.parametrize("text", ["0", "-1", "1h", "", "99999999999999"])
def test_a_bad_timeout_says_its_rule(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'compaction\.transaction\.timeout' is '.*' but must be a whole number of ms in 1\.\."):
        transaction_timeout({"compaction.transaction.timeout": text})
