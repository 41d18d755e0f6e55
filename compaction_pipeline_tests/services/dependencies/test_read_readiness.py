"""What is answered about a table over time: withdrawals, late data, flags, reports, expired snapshots, and properties of namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from compaction_pipeline.core.dependencies.ports import Remembered, Report
from compaction_pipeline.core.dependencies.readiness import ChangedSince, Readiness
from compaction_pipeline.core.dependencies.ready_time import SpecField, Window
from compaction_pipeline.core.errors import ConfigError, TableRefused
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.core.tables.node import PartitionValue
from compaction_pipeline.core.tables.table import CatalogEntry
from compaction_pipeline.services.dependencies.read_readiness import ReadReadiness
from compaction_pipeline_tests.services.dependencies.written_table import TABLE, WrittenTable
from compaction_pipeline_tests.state import sqlite_stores

NEW_YEAR, NEXT = "ts_day=2026-01-01", "ts_day=2026-01-02"
DAY = Window(datetime(2026, 1, 1, tzinfo=timezone.utc), datetime(2026, 1, 2, tzinfo=timezone.utc))
HOUR = timedelta(hours=1)


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    stores = sqlite_stores(tmp_path)
    stores.catalogs.add(CatalogEntry(TABLE.catalog, {}))
    return stores


@pytest.fixture
def table() -> WrittenTable:
    return WrittenTable(datetime(2026, 1, 2, 1, tzinfo=timezone.utc))


@pytest.fixture
def readiness(stores: Stores, table: WrittenTable) -> ReadReadiness:
    return ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock)


def test_a_partition_is_ready_when_the_watermark_has_reached_its_end(readiness: ReadReadiness, table: WrittenTable) -> None:
    assert not readiness.partition(TABLE, NEW_YEAR).ready
    assert "the table has no watermark" in readiness.partition(TABLE, NEW_YEAR).why
    table.mark("2026-01-01T23:00:00+00:00")
    before = readiness.partition(TABLE, NEW_YEAR)
    assert (before.ready, before.heads) == (False, (1,))
    assert before.why.endswith("but the end is 2026-01-02T00:00Z, 1 h later")
    table.mark("2026-01-02T00:00:00+00:00")
    after = readiness.partition(TABLE, NEW_YEAR)
    assert (after.ready, after.rule, after.ready_since, after.withdrawals) == (True, "watermark", table.now, 0)
    assert [one.ready for one in readiness.windows(TABLE, [DAY, Window(DAY.end, DAY.end + HOUR)])] == [True, False]
    assert table.readings == []


def test_each_partition_of_files_waits_for_itself_and_one_that_means_no_time_holds_back_no_other(
    readiness: ReadReadiness, table: WrittenTable
) -> None:
    table.specs = {
        0: (SpecField("ts_hour", "hour", 1, "timestamptz"), SpecField("id_bucket", "bucket[4]", 2, "long")),
        1: (SpecField("region", "identity", 3, "string"), SpecField("ts_month", "month", 1, "timestamptz")),
        2: (),
        3: (SpecField("region", "identity", 3, "string"),),
    }
    bucket = PartitionValue("id_bucket", "int", 1)
    first, second, no_time = ((0, (PartitionValue("ts_hour", "int", hour), bucket)) for hour in (490_895, 490_896, None))
    month = (1, (PartitionValue("region", "string", "a/b=%41"), PartitionValue("ts_month", "int", 671)))
    everything, of_any_time = (2, ()), (3, (PartitionValue("region", "string", "eu"),))
    table.mark("2026-01-01T00:00:00+00:00")
    missing = readiness.missing(TABLE, [first, second, no_time, month, everything, of_any_time])
    assert set(missing) == {second, no_time, everything, of_any_time}
    assert missing[second].endswith("but the end is 2026-01-01T01:00Z, 1 h later")
    assert missing[no_time].startswith("whether it is ready cannot be told: ")
    assert "region=eu has no time that a watermark could reach" in missing[of_any_time]


def test_a_compaction_without_a_key_hides_no_watermark(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    table.commit(operation="replace")
    assert readiness.partition(TABLE, NEW_YEAR).ready


def test_a_rollback_withdraws_and_a_new_watermark_makes_ready_again(readiness: ReadReadiness, table: WrittenTable) -> None:
    first = table.mark("2026-01-01T12:00:00+00:00")
    table.mark("2026-01-02T00:00:00+00:00")
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.head = first
    back = readiness.partition(TABLE, NEW_YEAR)
    assert (back.ready, back.withdrawals, back.ready_since) == (False, 1, None)
    table.mark("2026-01-02T00:30:00+00:00")
    again = readiness.partition(TABLE, NEW_YEAR)
    assert (again.ready, again.withdrawals, again.is_flapping) == (True, 1, False)


def test_a_lower_watermark_at_the_head_withdraws(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.mark("2026-01-01T10:00:00+00:00")
    assert not readiness.partition(TABLE, NEW_YEAR).ready


def test_late_data_behind_a_watermark_is_listed_and_withdraws_nothing(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=2)
    first = readiness.partition(TABLE, NEW_YEAR)
    assert (first.ready, first.changed_since) == (True, ())
    table.pass_time(hours=1)
    table.commit(operation="replace", d2026_01_01=1)
    assert readiness.partition(TABLE, NEW_YEAR).changed_since == ()
    table.pass_time(hours=1)
    late = table.commit(d2026_01_01=1, d2026_01_02=4)
    after = readiness.partition(TABLE, NEW_YEAR)
    assert (after.ready, after.ready_since, after.withdrawals) == (True, first.ready_since, 0)
    assert after.changed_since == (ChangedSince("ts_day=2026-01-01/id_bucket=1", late, table.now),)
    assert readiness.windows(TABLE, [DAY])[0].changed_since == ()
    # Manifests from before it was ready were not read.
    assert table.readings == [((1,), [2]), ((2,), [3])]


def test_late_data_that_cannot_be_looked_for_is_said_so(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.unreadable = True
    table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=2)
    assert readiness.partition(TABLE, NEW_YEAR).changed_since == ()
    table.commit(d2026_01_01=1)
    after = readiness.partition(TABLE, NEW_YEAR)
    assert (after.ready, after.changed_since) == (True, None)


def test_under_quiet_late_data_withdraws_and_three_withdrawals_propose_a_longer_time(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "quiet:2h"
    table.commit(d2026_01_01=1)

    def ask() -> Readiness:
        return readiness.partition(TABLE, NEW_YEAR)

    assert not ask().ready
    for number, gap in enumerate((2.5, 4.25, 3), start=1):
        table.pass_time(hours=gap)
        ready = ask()
        assert (ready.ready, ready.is_flapping, ready.longer_quiet) == (True, False, None)
        table.commit(d2026_01_01=1)
        late = ask()
        assert (late.ready, late.withdrawals) == (False, number)
    assert (late.is_flapping, late.longer_quiet) == (True, 5 * HOUR)
    assert "added files to ts_day=2026-01-01/id_bucket=1" in late.why
    assert late.changed_since == ()


def test_under_quiet_compactions_do_not_count_and_an_empty_partition_is_never_ready(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.namespace["compaction.ready-when"] = "quiet:2h"
    table.commit(d2026_01_01=3)
    table.pass_time(hours=2)
    table.commit(operation="replace", d2026_01_01=-2)
    assert [one.ready for one in readiness.partitions(TABLE, [NEW_YEAR, NEXT])] == [True, False]
    assert [one.ready for one in readiness.windows(TABLE, [DAY])] == [True]
    table.pass_time(hours=9)
    table.commit(operation="delete", d2026_01_01=-1)
    gone = readiness.partition(TABLE, NEW_YEAR)
    assert (gone.ready, gone.withdrawals, gone.why) == (False, 1, "nothing of it has files")
    # Each manifest was read once.
    assert table.readings == [(None, [2, 1]), ((2,), [3])]


def test_exists_and_quiet_of_unreadable_manifests_are_refused_in_words(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "exists"
    table.commit(d2026_01_01=1)
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.commit(d2026_01_01=1)
    table.unreadable = True
    with pytest.raises(TableRefused, match="encrypted"):
        readiness.partition(TABLE, NEW_YEAR)


def test_a_quiet_after_a_watermark_reads_from_the_beginning(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=2)
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.properties["compaction.ready-when"] = "exists"
    assert readiness.partition(TABLE, NEW_YEAR).ready
    assert readiness.partition(TABLE, NEW_YEAR).withdrawals == 0


def test_reading_starts_anew_after_a_rollback(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "exists"
    first = table.commit(d2026_01_02=1)
    table.commit(d2026_01_01=1)
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.head = first
    assert not readiness.partition(TABLE, NEW_YEAR).ready
    assert readiness.partition(TABLE, NEXT).ready


@pytest.mark.parametrize("value", ["true", "yes", "2026-01-01", "", "ts_day=2026-01-02", "ts_day=2026-01-01T00"])
def test_any_other_value_of_a_flag_says_no(readiness: ReadReadiness, table: WrittenTable, value: str) -> None:
    table.properties["compaction.ready-when"] = "flag:done"
    table.commit({"done": value})
    assert not readiness.partition(TABLE, NEW_YEAR).ready


def test_a_flag_lists_partitions_in_snapshots_or_in_the_property(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "flag:done"
    first = table.commit({"done": "ts_day=2025-12-31, ts_day=2026-01-01"})
    table.commit()
    table.commit({"done": "ts_day=2026-01-02"})
    assert [one.ready for one in readiness.partitions(TABLE, [NEW_YEAR, NEXT, "ts_day=2026-01-03"])] == [True, True, False]
    assert readiness.windows(TABLE, [Window(DAY.start - 24 * HOUR, DAY.end + 24 * HOUR)])[0].ready
    table.properties["done"] = "ts_day=2026-01-03"
    assert readiness.partition(TABLE, "ts_day=2026-01-03").ready
    table.head = first
    back = readiness.partition(TABLE, NEXT)
    assert (back.ready, back.withdrawals) == (False, 1)


def test_a_key_of_a_flag_may_hold_the_partition(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "flag:done.{partition}.ok"
    table.commit({"done.ts_day=2026-01-01.ok": "true", "done.ts_day=2026-01-02.ok": "1"})
    assert [one.ready for one in readiness.partitions(TABLE, [NEW_YEAR, NEXT])] == [True, False]
    table.commit({"done.ts_day=2026-01-01.ok": "false"})
    assert not readiness.partition(TABLE, NEW_YEAR).ready


def test_what_expired_snapshots_said_is_remembered_for_descendants_only(readiness: ReadReadiness, table: WrittenTable) -> None:
    flag, mark = {"compaction.ready-when": "flag:done"}, dict[str, str]()
    first = table.commit()
    said = table.commit({"done": NEW_YEAR, "watermark": str(round(datetime(2026, 1, 2, tzinfo=timezone.utc).timestamp() * 1000))})
    for properties in (flag, mark):
        table.properties = dict(properties)
        assert readiness.partition(TABLE, NEW_YEAR).ready
    table.commit()
    table.expire(first, said)
    for properties in (flag, mark):
        table.properties = dict(properties)
        assert readiness.partition(TABLE, NEW_YEAR).ready
    # Another table has the name now, so nothing of the old one counts.
    table.uuid = "uuid-2"
    for properties in (flag, mark):
        table.properties = dict(properties)
        assert not readiness.partition(TABLE, NEW_YEAR).ready


def test_reports_count_until_they_are_taken_back(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "reported"
    assert readiness.partition(TABLE, NEW_YEAR).why.startswith("nobody has reported it")
    assert readiness.report(TABLE, NEW_YEAR).ready
    assert readiness.windows(TABLE, [DAY])[0].ready
    assert not readiness.partition(TABLE, NEXT).ready
    back = readiness.withdraw(TABLE, NEW_YEAR)
    assert (back.ready, back.withdrawals) == (False, 1)
    with pytest.raises(ConfigError, match="has no such partition field"):
        readiness.report(TABLE, "day=2026-01-01")


def test_a_report_under_another_rule_says_which_rule_counts(readiness: ReadReadiness, table: WrittenTable) -> None:
    answer = readiness.report(TABLE, NEW_YEAR)
    assert (answer.ready, answer.rule) == (False, "watermark")


def test_one_bucket_that_is_flagged_or_reported_calls_no_partition_ready(
    readiness: ReadReadiness, table: WrittenTable, stores: Stores
) -> None:
    bucket = f"{NEW_YEAR}/id_bucket=1"
    table.properties["compaction.ready-when"] = "flag:done"
    table.commit({"done": bucket})
    assert [one.ready for one in readiness.partitions(TABLE, [NEW_YEAR, bucket])] == [False, False]
    table.properties["compaction.ready-when"] = "reported"
    with pytest.raises(ConfigError, match="'id_bucket', a field by bucket or truncate"):
        readiness.report(TABLE, bucket)
    # A report from before the field was one by bucket.
    stores.dependencies.report(table.uuid, Report(bucket, table.now))
    assert [one.ready for one in readiness.partitions(TABLE, [NEW_YEAR, bucket])] == [False, False]


def test_a_report_that_may_be_forgotten_is_unknown(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "reported"
    old = readiness.partition(TABLE, "ts_day=2024-01-01")
    assert not old.ready
    assert old.why.startswith("unknown: reports are kept for 400 days")


def test_what_nobody_asks_about_is_forgotten(readiness: ReadReadiness, table: WrittenTable, stores: Stores) -> None:
    table.properties["compaction.ready-when"] = "reported"
    readiness.report(TABLE, NEW_YEAR)
    table.pass_time(days=36)
    assert readiness.partition(TABLE, NEXT).ready is False
    assert set(stores.dependencies.answers(table.uuid, [NEW_YEAR, NEXT])) == {NEXT}
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.pass_time(days=400)
    assert readiness.partition(TABLE, "ts_day=2026-01-03").ready is False
    late = readiness.partition(TABLE, NEW_YEAR)
    assert (late.ready, late.why[:7]) == (False, "unknown")


def test_a_table_inherits_from_its_namespace_and_then_from_its_catalog(
    readiness: ReadReadiness, table: WrittenTable, stores: Stores
) -> None:
    key = "compaction.ready-when"
    stores.catalogs.replace(CatalogEntry(TABLE.catalog, {f"table.{key}": "reported"}))
    table.commit()
    assert readiness.partition(TABLE, NEW_YEAR).rule == "reported"
    table.namespace[key] = "quiet:90min"
    assert readiness.partition(TABLE, NEW_YEAR).rule == "quiet:90min"
    table.properties[key] = "flag:done"
    assert readiness.partition(TABLE, NEW_YEAR).rule == "flag:done"


def test_a_namespace_cannot_say_where_watermarks_are(readiness: ReadReadiness, table: WrittenTable, stores: Stores) -> None:
    key = "compaction.watermark-keys"
    table.commit({"ours": "5"})
    stores.catalogs.replace(CatalogEntry(TABLE.catalog, {f"table.{key}": "theirs"}))
    table.namespace[key] = "ours"
    with pytest.raises(ConfigError, match=r"lake\.shop\.events: 'compaction\.watermark-keys' is 'ours' in the namespace"):
        readiness.watermark(TABLE)
    table.properties[key] = "ours"
    assert readiness.watermark(TABLE).keys == ("ours",)


def test_a_bad_property_is_named_with_its_table(readiness: ReadReadiness, table: WrittenTable) -> None:
    for value in ("quiet", "quiet:90", "quiet:0h", "flag:", "sometimes", "exists:1h"):
        table.properties["compaction.ready-when"] = value
        with pytest.raises(ConfigError, match=r"lake\.shop\.events: 'compaction\.ready-when' is"):
            readiness.partition(TABLE, NEW_YEAR)


def test_an_unreadable_watermark_is_an_error_that_names_key_and_snapshot(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.commit({"flink.watermark": "yesterday"})
    with pytest.raises(ConfigError, match=r"lake\.shop\.events: 'flink\.watermark' in the summary of snapshot 1 is 'yesterday'"):
        readiness.partition(TABLE, NEW_YEAR)


def test_a_changed_rule_is_no_withdrawal(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00")
    assert readiness.partition(TABLE, NEW_YEAR).ready
    table.properties["compaction.ready-when"] = "reported"
    changed = readiness.partition(TABLE, NEW_YEAR)
    assert (changed.ready, changed.withdrawals) == (False, 0)


def test_what_is_ready_by_another_rule_too_is_ready_since_the_first(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-02T00:00:00+00:00", d2026_01_01=1)
    first = readiness.partition(TABLE, NEW_YEAR)
    table.pass_time(hours=3)
    late = table.commit(d2026_01_01=1)
    table.properties["compaction.ready-when"] = "exists"
    changed = readiness.partition(TABLE, NEW_YEAR)
    assert (changed.ready, changed.rule, changed.ready_since) == (True, "exists", first.at)
    table.properties["compaction.ready-when"] = "watermark"
    assert [one.snapshot_id for one in readiness.partition(TABLE, NEW_YEAR).changed_since or ()] == [late]


def test_the_watermark_of_a_table_tells_where_it_comes_from(readiness: ReadReadiness, table: WrittenTable) -> None:
    assert readiness.watermark(TABLE).watermark is None
    table.mark("2026-01-02T00:00:00+00:00")
    found = readiness.watermark(TABLE)
    assert found.watermark is not None
    assert (found.watermark.at, found.watermark.key, found.watermark.snapshot_id) == (DAY.end, "watermark", 1)
    assert found.keys == ("watermark", "flink.watermark", "kafka.connect.valid-through-ts")


def test_a_watermark_in_seconds_is_told_as_one(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.commit({"watermark": str(round(DAY.end.timestamp()))})
    found = readiness.watermark(TABLE)
    assert found.watermark is not None
    assert (found.watermark.at.year, found.warning) == (
        1970,
        "a watermark before 1980 is likely one in seconds: let the writer of 'watermark' give milliseconds since 1970",
    )
    assert readiness.partition(TABLE, NEW_YEAR).why.endswith(f"later; {found.warning}")
    table.mark("1980-01-01T00:00:00+00:00")
    assert readiness.watermark(TABLE).warning is None
    assert readiness.partition(TABLE, NEW_YEAR).why.endswith("later")


def test_a_report_of_a_value_with_signs_of_paths_counts(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.specs = {0: (SpecField("ts_day", "day", 1, "timestamptz"), SpecField("region", "identity", 2, "string"))}
    table.properties["compaction.ready-when"] = "reported"
    table.commit()
    assert readiness.report(TABLE, "ts_day=2026-01-01/region=a%2Fb").ready
    assert readiness.partition(TABLE, "ts_day=2026-01-01/region=a%2Fb").ready
    assert not readiness.partition(TABLE, "ts_day=2026-01-01/region=a").ready
    assert not readiness.withdraw(TABLE, "ts_day=2026-01-01/region=a%2Fb").ready


def test_a_bad_rule_of_partitions_stops_no_word_about_the_watermark(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.properties["compaction.ready-when"] = "later"
    snapshot = table.commit()
    readiness.report_watermark(TABLE, snapshot, datetime(2026, 1, 2, tzinfo=timezone.utc))
    found = readiness.watermark(TABLE).watermark
    assert found is not None
    assert found.at == datetime(2026, 1, 2, tzinfo=timezone.utc)
    with pytest.raises(ConfigError, match="'later'"):
        readiness.partition(TABLE, "ts_day=2026-01-01")


def test_a_report_that_comes_while_somebody_asks_is_not_overwritten(table: WrittenTable, stores: Stores) -> None:
    """The question is about to remember what the head says when the report of the same head arrives, and the other way round."""

    class Interrupted:
        """The store, in which something happens once between a look at what is remembered and the next word of it."""

        def __init__(self) -> None:
            self.then: list[Callable[[], object]] = []

        def __getattr__(self, name: str) -> object:
            return getattr(stores.dependencies, name)

        def remembered(self, uuid: str, store: int) -> Mapping[int, Remembered]:
            found = stores.dependencies.remembered(uuid, store)
            if self.then:
                self.then.pop()()
            return found

    memory = Interrupted()
    interrupted = ReadReadiness(stores.catalogs, table, memory, table.clock)  # type: ignore[arg-type]
    other = ReadReadiness(stores.catalogs, table, stores.dependencies, table.clock)
    told, late = datetime(2026, 1, 2, tzinfo=timezone.utc), datetime(2026, 1, 3, tzinfo=timezone.utc)
    snapshot = table.mark("2026-01-04T00:00:00+00:00")
    memory.then.append(lambda: other.report_watermark(TABLE, snapshot, told))
    interrupted.watermark(TABLE)
    found = other.watermark(TABLE).watermark
    assert found is not None
    assert found.at == told, "the lowest of what one snapshot says counts"
    snapshot = table.mark("2026-01-04T00:00:00+00:00")
    memory.then.append(lambda: other.watermark(TABLE))
    interrupted.report_watermark(TABLE, snapshot, late)
    assert {one.key: one.value for one in stores.dependencies.remembered("uuid-1", 0)[snapshot].said} == {
        "watermark": "1767484800000",
        "reported": late.isoformat(),
    }


def test_a_report_that_could_not_be_read_again_is_refused(readiness: ReadReadiness, table: WrittenTable) -> None:
    snapshot = table.commit()
    with pytest.raises(ConfigError, match="year 1"):
        readiness.report_watermark(TABLE, snapshot, datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))))
    assert readiness.watermark(TABLE).watermark is None


def test_sentences_tell_seconds_and_no_watermark_seems_to_have_reached_the_end(readiness: ReadReadiness, table: WrittenTable) -> None:
    table.mark("2026-01-01T23:59:59.999000+00:00")
    answer = readiness.partition(TABLE, NEW_YEAR)
    assert "the watermark is 2026-01-01T23:59:59Z (watermark of snapshot 1), but the end is 2026-01-02T00:00Z, 0 s later" in answer.why
    assert answer.watermark == DAY.end - timedelta(milliseconds=1)
