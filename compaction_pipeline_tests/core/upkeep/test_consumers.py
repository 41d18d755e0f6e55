"""Registered consumers: what they hold, until when, and what is said when their snapshot is gone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.upkeep.consumers import Consumer, checked_end, held_by_consumers, lost
from compaction_pipeline.core.upkeep.expiry import decide_expiry
from compaction_pipeline.core.upkeep.history import Ref
from compaction_pipeline.core.upkeep.retention import Retention
from compaction_pipeline_tests.core.upkeep.histories import DAY, NOW, history, line, snapshot

TABLE = TableIdentifier("lake", ("shop",), "orders")
RENAMED = TableIdentifier("lake", ("shop",), "orders_old")
ETL = Consumer(TABLE, "etl", TABLE, "uuid", 2, NOW, NOW + 3 * DAY)
_RETENTION = Retention(max_snapshot_age=DAY)


def test_what_a_consumer_has_not_read_stays_until_its_registration_ends_and_the_reason_names_it() -> None:
    made = line(9, 8, 7, 6)
    held = list(held_by_consumers([ETL], "uuid"))
    expiry = decide_expiry(made, _RETENTION, held, NOW)
    assert (expiry.removed, expiry.next_look) == ((1,), ETL.until)
    assert expiry.kept[2].reason == "consumer etl has not read what came after it"
    assert expiry.kept[3].reason == f"it lies between the head of branch main and snapshot 2: {expiry.kept[2].reason}"
    assert (expiry.kept[2].until, expiry.kept[3].until) == (ETL.until, ETL.until)
    assert decide_expiry(made, _RETENTION, held, ETL.until).removed == (1,)
    assert decide_expiry(made, _RETENTION, held, ETL.until + timedelta(seconds=1)).removed == (1, 2, 3)


def test_of_two_consumers_with_one_snapshot_the_one_that_stays_longer_counts() -> None:
    longer = replace(ETL, name="b", until=NOW + 5 * DAY)
    for consumers in ([ETL, longer], [longer, ETL]):
        held = held_by_consumers(consumers, "uuid")
        assert decide_expiry(line(9, 8, 7, 6), _RETENTION, held, NOW).kept[2].until == longer.until


def test_a_branch_that_leads_to_what_a_consumer_has_not_read_stays_as_long_as_the_registration() -> None:
    branch = Ref("audit", 4, is_branch=True, max_age=DAY)
    made = history(snapshot(1, None, 9), snapshot(2, 1, 8), snapshot(3, 2, 7), snapshot(4, 3, 6), snapshot(5, 1, 5), audit=branch)
    held = list(held_by_consumers([ETL], "uuid"))
    expiry = decide_expiry(made, _RETENTION, held, NOW)
    assert (expiry.removed, expiry.dropped_refs) == ((1,), {})
    later = decide_expiry(made, _RETENTION, held, ETL.until + timedelta(seconds=1))
    assert (later.removed, list(later.dropped_refs)) == ((1, 2, 3, 4), ["audit"])
    assert list(decide_expiry(made, _RETENTION, [(5, ETL.stay)], NOW).dropped_refs) == ["audit"]


def test_a_consumer_goes_with_its_table_when_the_table_is_renamed() -> None:
    assert [snapshot_id for snapshot_id, _ in held_by_consumers([ETL], "uuid")] == [2]
    assert list(held_by_consumers([ETL], "that of a new table with the old name")) == []


def test_a_consumer_whose_snapshot_is_gone_is_told_as_long_as_it_is_registered_with_the_first_time_at_which_it_was_missed() -> None:
    assert list(lost([ETL], TABLE, "uuid", line(9, 8), NOW)) == []
    (gone,) = lost([ETL], TABLE, "uuid", line(9), NOW)
    assert (gone, ETL.problem) == (replace(ETL, missing_at=NOW), None)
    assert gone.problem is not None
    assert "snapshot 2 of lake.shop.orders" in gone.problem
    assert "consumer etl" in gone.problem
    assert list(lost([gone], RENAMED, "uuid", line(9), NOW + DAY)) == [gone]
    assert list(lost([ETL], TABLE, "uuid", line(9), ETL.until + DAY)) == []
    assert list(lost([ETL], RENAMED, "that of another table", line(9), NOW)) == []


def test_a_table_that_was_made_anew_has_lost_the_consumers_of_the_old_one_even_when_it_has_a_snapshot_of_that_id() -> None:
    assert list(lost([ETL], TABLE, "that of the new table", line(9, 8), NOW)) == [replace(ETL, missing_at=NOW)]


@pytest.mark.parametrize(
    ("name", "days"), [("", 1), ("-x", 1), ("a b", 1), ("a/b", 1), ("a" * 101, 1), ("a", 0), ("a", 367), ("a", float("nan"))]
)
def test_a_registration_that_breaks_a_rule_is_refused(name: str, days: float) -> None:
    with pytest.raises(ConfigError, match=r"but .* must be"):
        checked_end(name, days, NOW)


def test_a_registration_ends_after_its_days() -> None:
    assert checked_end("etl:orders.v1_a-b", 0.5, NOW) == NOW + DAY / 2
