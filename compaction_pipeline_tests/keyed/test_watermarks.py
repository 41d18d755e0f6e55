"""Watermarks of sinks, and sinks that begin anew."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from compaction_pipeline.core.errors import ConfigError, RacesLost
from compaction_pipeline.iceberg.keyed.append import forget_sink
from compaction_pipeline.iceberg.keyed.stores import load_stores
from compaction_pipeline_tests.keyed.acting_catalog import Commit
from compaction_pipeline_tests.keyed.written import Keyed, row

EARLY = datetime(2026, 11, 23, 8, tzinfo=timezone.utc)
LATE = EARLY + timedelta(minutes=5)


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    return Keyed(tmp_path)


def in_summary(keyed: Keyed) -> int | None:
    snapshot = keyed.stores()[1].current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    text = snapshot.summary.additional_properties.get("watermark")
    return None if text is None else int(text)


def test_the_lowest_watermark_of_all_sinks_is_that_of_the_table(keyed: Keyed) -> None:
    assert keyed.table.watermark() is None
    keyed.write(("INSERT", row(1)), sink_id="a", batch=0, watermark=LATE)
    assert keyed.table.watermark() == LATE
    assert in_summary(keyed) == LATE.timestamp() * 1000
    keyed.write(("INSERT", row(2)), sink_id="b", batch=0)
    assert keyed.table.watermark() is None, "sink b has promised nothing"
    assert in_summary(keyed) is None
    keyed.write(("INSERT", row(3)), sink_id="b", batch=1, watermark=EARLY.astimezone(timezone(timedelta(hours=9))))
    assert keyed.table.watermark() == EARLY
    assert in_summary(keyed) == EARLY.timestamp() * 1000
    keyed.table.reset_sink("b")
    assert keyed.table.watermark() == LATE


def test_a_watermark_never_goes_back_and_stays_when_a_batch_has_none(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1)), sink_id="a", batch=0, watermark=LATE)
    keyed.write(("INSERT", row(2)), sink_id="a", batch=1, watermark=EARLY)
    keyed.write(("INSERT", row(3)), sink_id="a", batch=2)
    assert keyed.table.watermark() == LATE
    assert in_summary(keyed) == LATE.timestamp() * 1000


def test_a_replayed_batch_moves_no_watermark(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1)), sink_id="a", batch=0, watermark=EARLY)
    assert keyed.write(("INSERT", row(1)), sink_id="a", batch=0, watermark=LATE) is None
    assert keyed.table.watermark() == EARLY


def test_a_sink_that_is_reset_writes_its_first_batches_again(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1)), sink_id="a", batch=7)
    keyed.write(("INSERT", row(2)), sink_id="b", batch=7)
    keyed.table.reset_sink("a")
    assert keyed.write(("INSERT", row(3)), sink_id="a", batch=0) is not None
    assert keyed.write(("INSERT", row(4)), sink_id="b", batch=7) is None, "the other sink keeps its mark"
    keyed.check([row(1), row(2), row(3)])


def test_a_reset_that_loses_races_is_tried_again(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1)), sink_id="a", batch=7)

    def lose(commit: Commit) -> None:
        raise CommitFailedException("another writer was faster")

    keyed.catalog.in_place_of_commits("t_change_", lose, lose)
    keyed.table.reset_sink("a")
    assert keyed.write(("INSERT", row(2)), sink_id="a", batch=0) is not None


def test_what_is_no_watermark_and_no_sink_is_refused(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1)), sink_id="a", batch=0)
    for options, message in (
        ({"watermark": LATE}, "watermark is given without sink_id and batch"),
        ({"sink_id": "a", "batch": 1, "watermark": LATE.replace(tzinfo=None)}, "must have a time zone"),
        ({"sink_id": "a", "batch": 1, "watermark": datetime(1969, 1, 1, tzinfo=timezone.utc)}, "lie after 1970"),
    ):
        with pytest.raises(ConfigError, match=message):
            keyed.write(("INSERT", row(2)), **options)
    with pytest.raises(ConfigError, match="no marks of sink 'b'; the sinks with marks are: a"):
        keyed.table.reset_sink("b")
    with pytest.raises(ConfigError, match="sink_id is 'a b' but must be"):
        keyed.table.reset_sink("a b")
    with keyed.stores()[1].transaction() as change:
        change.set_properties({"compaction.sink.a.watermark": "soon"})
    with pytest.raises(ConfigError, match=r"'compaction.sink.a.watermark' of the keyed table is 'soon'"):
        keyed.table.watermark()
    keyed.check([row(1)])


def test_a_reset_says_when_it_lost_every_race(keyed: Keyed) -> None:
    keyed.write(("INSERT", row(1)), sink_id="a", batch=7)

    def lose(name: str, commit: Commit) -> None:
        raise CommitFailedException("another writer was faster")

    keyed.catalog.act = lose
    with pytest.raises(RacesLost, match="the marks of sink 'a' stay"):
        forget_sink(load_stores(keyed.catalog, ("db", "t")), "a", lambda seconds: None)
