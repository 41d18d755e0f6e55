"""What the watermark of a table is, in literal cases: snapshots from the oldest to the head, and what counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.dependencies.watermark import (
    Said,
    Watermark,
    WatermarkRule,
    WatermarkStore,
    alternating_jobs,
    carried,
    said,
    watermark_of_stores,
    watermark_rule,
)
from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.upkeep.history import MAIN, History, Ref, Snapshot
from compaction_pipeline_tests.one_store import watermark_of

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
MIN, MAX = str(-(2**63)), str(2**63 - 1)
KAFKA = "kafka.connect.valid-through-ts"
DEFAULT = WatermarkRule()


def at(milliseconds: int) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds)


def line(*summaries: Mapping[str, str], oldest_parent: int | None = None) -> History:
    """Snapshots 1, 2, … of main with these summaries. Snapshot n was committed n hours after 1970."""
    snapshots = {
        number: Snapshot(number, number - 1 or oldest_parent, EPOCH + number * timedelta(hours=1), summary)
        for number, summary in enumerate(summaries, start=1)
    }
    return History(snapshots, {MAIN: Ref(MAIN, len(summaries), is_branch=True)} if snapshots else {})


@pytest.mark.parametrize(
    ("summaries", "expected"),
    [
        ([], None),
        ([{}], None),
        ([{"watermark": "5"}], Watermark(at(5), "watermark", 1)),
        ([{"flink.watermark": "5"}], Watermark(at(5), "flink.watermark", 1)),
        ([{"watermark": "0"}], Watermark(at(0), "watermark", 1)),
        ([{"watermark": " 5 "}], Watermark(at(5), "watermark", 1)),
        # A snapshot without a key hides nothing, whatever its operation is.
        ([{"watermark": "5"}, {"operation": "replace"}, {"operation": "append"}], Watermark(at(5), "watermark", 1)),
        # The newest counts, also when it is lower, and under whichever key.
        ([{"watermark": "9"}, {"watermark": "5"}], Watermark(at(5), "watermark", 2)),
        ([{"watermark": "9"}, {"flink.watermark": "5"}], Watermark(at(5), "flink.watermark", 2)),
        ([{"watermark": "5"}, {"flink.watermark": "9"}], Watermark(at(9), "flink.watermark", 2)),
        # Of two keys in one snapshot the lower counts.
        ([{"watermark": "5", "flink.watermark": "9"}], Watermark(at(5), "watermark", 1)),
        ([{"watermark": "9", KAFKA: "1970-01-01T00:00:00.005Z"}], Watermark(at(5), KAFKA, 1)),
        # These say nothing.
        ([{"watermark": "5"}, {"watermark": "-1"}], Watermark(at(5), "watermark", 1)),
        ([{"watermark": "5"}, {"watermark": MIN}], Watermark(at(5), "watermark", 1)),
        ([{"watermark": "5"}, {KAFKA: "null"}], Watermark(at(5), "watermark", 1)),
        ([{"watermark": "-1"}], None),
        ([{"watermark": MIN}], None),
        ([{"watermark": "-1", "flink.watermark": "9"}], Watermark(at(9), "flink.watermark", 1)),
        ([{"watermark": "-2"}], Watermark(at(-2), "watermark", 1)),
        # A bounded load has ended: all that was before its commit is there.
        ([{"watermark": MAX}], Watermark(at(3_600_000), "watermark", 1)),
        ([{"watermark": MAX}, {}, {}], Watermark(at(3_600_000), "watermark", 1)),
        ([{"watermark": "5", "flink.watermark": MAX}], Watermark(at(5), "watermark", 1)),
        # A key that nobody named.
        ([{"my.watermark": "5"}], None),
    ],
)
def test_the_newest_snapshot_that_says_something_counts(summaries: list[dict[str, str]], expected: Watermark | None) -> None:
    assert watermark_of(line(*summaries), {}, DEFAULT) == expected


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        # `OffsetDateTime.toString` of Java, which Kafka Connect writes.
        ("1970-01-01T00:00Z", 0),
        ("1970-01-01T00:01Z", 60_000),
        ("1970-01-01T00:00:05Z", 5_000),
        ("1970-01-01T00:00:05.120Z", 5_120),
        ("1970-01-01T00:00:05.12Z", 5_120),
        ("1970-01-01T01:00:05+01:00", 5_000),
        ("1969-12-31T19:00-05:00", 0),
        ("1970-01-01T00:00:30+00:00:30", 0),
        ("2026-01-01T00:00:00.000000Z", 1_767_225_600_000),
    ],
)
def test_a_time_with_an_offset_is_read(text: str, milliseconds: int) -> None:
    assert watermark_of(line({KAFKA: text}), {}, DEFAULT) == Watermark(at(milliseconds), KAFKA, 1)


def test_digits_below_a_microsecond_make_it_lower_and_never_higher() -> None:
    found = watermark_of(line({KAFKA: "1970-01-01T00:00:00.000001999Z"}), {}, DEFAULT)
    assert found is not None
    assert found.at == EPOCH + timedelta(microseconds=1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "5.5",
        "1_000",
        "٥",
        "1970-01-01",
        "1970-01-01T00:00:05",
        "1970-01-01 00:00:05Z",
        "1970-13-01T00:00Z",
        "+292278994-08-17T07:12:55.807Z",
        "0001-01-01T00:00+05:00",
        "9223372036854775806",
        "99999999999999999999999",
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_key_and_snapshot(text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        watermark_of(line({"watermark": "5"}, {KAFKA: text}, {}), {}, DEFAULT)
    assert f"'{KAFKA}' in the summary of snapshot 2 is {text!r} but must be" in str(raised.value)
    # What a newer snapshot outdoes hurts nobody.
    assert watermark_of(line({KAFKA: text}, {"watermark": "5"}), {}, DEFAULT) == Watermark(at(5), "watermark", 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7", at(7)), ("-1", None), (MIN, None), (MAX, None)],
)
def test_amoros_property_counts_when_no_snapshot_says_anything(text: str, expected: datetime | None) -> None:
    of_property = None if expected is None else Watermark(expected, "watermark.table", None)
    assert watermark_of(line({}), {"watermark.table": text}, DEFAULT) == of_property
    assert watermark_of(History({}, {}), {"watermark.table": text}, DEFAULT) == of_property
    assert watermark_of(line({"watermark": "5"}), {"watermark.table": text}, DEFAULT) == Watermark(at(5), "watermark", 1)


def test_a_property_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"'watermark\.table' in the table's properties is 'x' but must be"):
        watermark_of(line({}), {"watermark.table": "x"}, DEFAULT)


EU, US = "flink.watermark.eu", "flink.watermark.us"
TWO = {"compaction.watermark-writers": f"eu:{EU}, us:{US}"}


@pytest.mark.parametrize(
    ("summaries", "expected"),
    [
        ([{EU: "5"}], None),
        ([{EU: "5"}, {US: "9"}], Watermark(at(5), EU, 1)),
        ([{EU: "5"}, {US: "9"}, {EU: "20"}], Watermark(at(9), US, 2)),
        ([{EU: "5"}, {US: "9"}, {EU: "20"}, {US: "-1"}], Watermark(at(9), US, 2)),
        ([{EU: "5"}, {US: "-1"}], None),
        # Other keys do not count once writers are named.
        ([{EU: "5"}, {"watermark": "1"}], None),
        ([{EU: "5", US: MAX}], Watermark(at(5), EU, 1)),
    ],
)
def test_of_named_writers_the_lowest_counts_and_each_must_have_been_seen(
    summaries: list[dict[str, str]], expected: Watermark | None
) -> None:
    assert watermark_of(line(*summaries), {"watermark.table": "1"}, watermark_rule(TWO)) == expected


def test_a_writer_ends_when_its_name_is_removed() -> None:
    found = line({EU: "5"}, {US: "9"})
    assert watermark_of(found, {}, watermark_rule({"compaction.watermark-writers": f"us:{US}"})) == Watermark(at(9), US, 2)


def test_the_rule_of_a_table_comes_from_its_properties() -> None:
    assert watermark_rule({}) == WatermarkRule(("watermark", "flink.watermark", KAFKA), {})
    assert watermark_rule({"compaction.watermark-keys": " a , b"}).keys == ("a", "b")
    assert watermark_rule(TWO).writers == {"eu": EU, "us": US}


@pytest.mark.parametrize("text", ["", ",", "a,", "a,a", "operation", "total-records", "flink.job-id", "flink.max-committed-checkpoint-id"])
def test_keys_that_break_the_rule_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'compaction\.watermark-keys' is .* but must be"):
        watermark_rule({"compaction.watermark-keys": text})


@pytest.mark.parametrize(
    "text", ["", "eu", "eu:", ":a", "eu:a,eu:b", "eu:a,us:a", "eu:a,", "eu:kafka.connect.offsets.t", "eu:compaction-pipeline.record-id"]
)
def test_writers_that_break_the_rule_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"'compaction\.watermark-writers' is .* but must be"):
        watermark_rule({"compaction.watermark-writers": text})


def test_a_walk_that_ends_where_snapshots_expired_uses_what_is_remembered_of_an_ancestor() -> None:
    five = Said("watermark", "5", 90, at(1))
    cut = line({}, {}, {}, oldest_parent=99)
    counts = Watermark(at(5), "watermark", 90)
    assert watermark_of(cut, {}, DEFAULT) is None
    for ancestor in (99, 1, 2, 3):
        assert watermark_of(cut, {}, DEFAULT, {ancestor: [five]}) == counts
    # The newest of them counts.
    assert watermark_of(cut, {}, DEFAULT, {99: [Said("watermark", "4", 80, at(0))], 2: [five]}) == counts
    # Of a snapshot that was rolled back, or of another branch.
    assert watermark_of(cut, {}, DEFAULT, {98: [five], 4: [five]}) is None
    # A history that is whole says by itself that there is none.
    assert watermark_of(line({}, {}), {}, DEFAULT, {1: [five]}) is None
    # What a snapshot says outdoes what is remembered.
    assert watermark_of(line({"watermark": "3"}, {}, oldest_parent=99), {}, DEFAULT, {2: [five]}) == Watermark(at(3), "watermark", 1)


def test_what_a_writer_reported_of_a_snapshot_counts_as_if_its_summary_said_it() -> None:
    nine = Said("reported", "1970-01-01T00:00:00.009+00:00", 2, at(0))
    counts = Watermark(at(9), "reported", 2)
    found = line({"watermark": "5"}, {}, {"operation": "replace"})
    assert watermark_of(found, {}, DEFAULT, {2: [nine]}) == counts
    assert watermark_of(line({"watermark": "5"}, {}, {"watermark": "6"}), {}, DEFAULT, {2: [nine]}) == Watermark(at(6), "watermark", 3)
    # A rollback takes it back, and so does a report that speaks of another snapshot.
    back = History(found.snapshots, {MAIN: Ref(MAIN, 1, is_branch=True)})
    assert watermark_of(back, {}, DEFAULT, {2: [nine]}) == Watermark(at(5), "watermark", 1)
    assert watermark_of(found, {}, DEFAULT, {3: [replace(nine, snapshot_id=7)]}) == Watermark(at(5), "watermark", 1)
    # A newer head keeps it when its own place among the remembered heads is lost.
    assert watermark_of(found, {}, DEFAULT, {3: [nine]}) == counts
    # The report was corrected. The snapshot itself knows it, and the newest head.
    seven = replace(nine, value="1970-01-01T00:00:00.007+00:00")
    assert watermark_of(found, {}, DEFAULT, {3: [seven], 2: [nine]}) == counts
    longer = line({"watermark": "5"}, {}, {"operation": "replace"}, {})
    assert watermark_of(longer, {}, DEFAULT, {3: [seven], 4: [nine]}) == counts
    # The snapshot has expired.
    assert watermark_of(History({3: found.snapshots[3]}, found.refs), {}, DEFAULT, {2: [nine]}) == counts
    # Among named writers it is the key of one of them, or of none.
    assert watermark_of(found, {}, WatermarkRule(writers={"eu": "watermark"}), {2: [nine]}) == Watermark(at(5), "watermark", 1)
    assert watermark_of(found, {}, WatermarkRule(writers={"eu": "reported"}), {2: [nine]}) == counts


def test_a_copy_never_outdoes_what_was_reported_of_a_snapshot_that_has_expired() -> None:
    found = line({"watermark": "9"}, {}, {"operation": "replace", "watermark": "9"})
    five = Said("reported", "1970-01-01T00:00:00.005+00:00", 2, at(0))
    counts = Watermark(at(5), "reported", 2)
    assert watermark_of(found, {}, DEFAULT, {2: [five]}) == counts
    left = History({3: found.snapshots[3]}, found.refs)
    for remembered in ({2: [five]}, {3: said(found, DEFAULT, {2: [five]})}):
        assert watermark_of(left, {}, DEFAULT, remembered) == counts


def test_the_end_of_a_bounded_load_is_remembered_with_the_time_of_its_commit() -> None:
    whole = line({"watermark": MAX}, {}, {})
    known = {3: said(whole, DEFAULT)}
    cut = History({3: whole.snapshots[3]}, whole.refs)
    assert watermark_of(cut, {}, DEFAULT, known) == watermark_of(whole, {}, DEFAULT) == Watermark(at(3_600_000), "watermark", 1)


@pytest.mark.parametrize(
    ("summaries", "rule", "expected"),
    [
        ([{}], DEFAULT, {}),
        ([{"watermark": "5", "flink.job-id": "j", "flink.max-committed-checkpoint-id": "3"}, {}], DEFAULT, {"watermark": "5"}),
        ([{"watermark": "5"}, {"watermark": "4"}], DEFAULT, {"watermark": "4"}),
        ([{"watermark": "5"}, {"watermark": "-1"}], DEFAULT, {"watermark": "5"}),
        ([{"watermark": "5", KAFKA: "1970-01-01T00:00Z"}], DEFAULT, {"watermark": "5", KAFKA: "1970-01-01T00:00Z"}),
        # What is outdone under another key must not count again.
        ([{"watermark": "5"}, {"flink.watermark": "9"}], DEFAULT, {"flink.watermark": "9"}),
        # An error stays in sight.
        ([{"watermark": "soon"}, {}], DEFAULT, {"watermark": "soon"}),
        # Our own commit is later than the load, and next to nothing may become ready by it.
        ([{"watermark": MAX}, {}], DEFAULT, {"watermark": "3600000"}),
        ([{EU: "5"}, {US: "9"}, {"watermark": "7"}], watermark_rule(TWO), {EU: "5", US: "9", "watermark": "7"}),
    ],
)
def test_what_a_commit_of_ours_copies(summaries: list[dict[str, str]], rule: WatermarkRule, expected: dict[str, str]) -> None:
    found = line(*summaries)
    assert carried(found, len(summaries), rule) == expected
    assert carried(found, None, rule) == {}


def test_jobs_of_flink_that_say_watermarks_in_turn_are_warned_of() -> None:
    def by(job: str, **more: str) -> dict[str, str]:
        return {"flink.job-id": job, "watermark": "5", **more}

    found = alternating_jobs(line(by("a"), by("b"), {}, by("a")), DEFAULT)
    assert found is not None
    assert "b and a" in found
    assert "compaction.watermark-writers" in found
    # A job that was started anew; jobs without watermarks; writers that are named.
    assert alternating_jobs(line(by("a"), by("a"), by("b"), by("b")), DEFAULT) is None
    assert alternating_jobs(line(*({"flink.job-id": job} for job in "aba")), DEFAULT) is None
    assert alternating_jobs(line(by("a"), by("b"), by("a")), watermark_rule(TWO)) is None
    assert alternating_jobs(History({}, {}), DEFAULT) is None


def test_of_the_two_stores_of_a_keyed_table_the_greater_counts() -> None:
    def both(base: History, change: History, of_base: dict[str, str], of_change: dict[str, str]) -> Watermark | None:
        return watermark_of_stores((WatermarkStore(base, of_base), WatermarkStore(change, of_change)), DEFAULT)

    five, nine, none = line({"watermark": "5"}), line({"watermark": "9"}), line({})
    assert both(five, nine, {}, {}) == both(nine, five, {}, {}) == Watermark(at(9), "watermark", 1)
    assert both(none, five, {}, {}) == both(five, none, {}, {}) == Watermark(at(5), "watermark", 1)
    assert both(none, none, {"watermark.table": "3"}, {"watermark.table": "4"}) == Watermark(at(4), "watermark.table", None)
    assert both(five, none, {}, {"watermark.table": "9"}) == Watermark(at(9), "watermark.table", None)
    assert both(none, none, {}, {}) is None


def test_our_own_sinks_lower_the_watermark_of_a_keyed_table_and_never_raise_it() -> None:
    def of(summary: dict[str, str], **marks: str) -> Watermark | None:
        properties = {f"compaction.sink.{sink}.{mark}": text for key, text in marks.items() for sink, mark in [key.split("__")]}
        named = {key.replace("last_batch", "last-batch"): text for key, text in properties.items()}
        return watermark_of_stores((WatermarkStore(line({}), {}), WatermarkStore(line(summary), named)), DEFAULT)

    summary = Watermark(at(5), "watermark", 1)
    assert of({"watermark": "5"}, a__watermark="5", b__watermark="8") == summary
    assert of({"watermark": "5"}, a__watermark="8") == summary
    assert of({"watermark": "5"}, a__watermark="3") == Watermark(at(3), "compaction.sink.*.watermark", None)
    # One sink has promised nothing yet.
    assert of({"watermark": "5"}, a__watermark="8", b__last_batch="1") is None
    # The snapshots were rolled back, and the marks were not.
    assert of({}, a__watermark="8") is None


def test_each_named_writer_of_a_keyed_table_may_write_to_either_store() -> None:
    base, change = line({EU: "5"}), line({EU: "3", US: "9"})
    stores = (WatermarkStore(base, {}), WatermarkStore(change, {}))
    assert watermark_of_stores(stores, watermark_rule(TWO)) == Watermark(at(5), EU, 1)
    assert watermark_of_stores(stores[:1], watermark_rule(TWO)) is None
