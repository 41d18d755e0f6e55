"""How much of an edge must be there, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from itertools import pairwise, product

import pytest

from compaction_pipeline.core.dependencies.center.periods import Period
from compaction_pipeline.core.dependencies.center.strength import Group, Standing, Strength, Until, is_met, lacking, next_look, note_of
from compaction_pipeline.core.errors import ConfigError

START = datetime(2026, 1, 2, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
UNTIL = START + 6 * HOUR
NEVER = START - HOUR


def rows(text: str) -> Sequence[Standing]:
    """A business time for each letter, which opens an hour behind the one before: there (+), not there (-), failed (!)."""
    return [Standing(START + HOUR * number, letter == "+", letter == "!") for number, letter in enumerate(text)]


def met(strength: Strength, text: str, at: datetime, *, until: datetime | None = None, waits: bool = True) -> bool:
    return is_met(Group(0, strength, until, waits), rows(text), at)


@pytest.mark.parametrize(
    ("strength", "text", "hours", "expected"),
    [
        (Strength.ALL, "++", 0, True),
        (Strength.ALL, "+-", 9, False),
        (Strength.ANY, "--+-", 0, True),
        (Strength.ANY, "-!--", 9, False),
        (Strength.NEWEST, "+--", 0, True),
        (Strength.NEWEST, "+--", 1, False),
        (Strength.NEWEST, "-+-", 1, True),
        (Strength.NEWEST, "--+", 1, False),
        (Strength.NEWEST, "--+", 2, True),
        (Strength.NEWEST, "+++", -1, False),
    ],
)
def test_a_strength_is_met(strength: Strength, text: str, hours: int, expected: bool) -> None:
    assert met(strength, text, START + hours * HOUR) is expected


def test_a_time_of_several_parts_is_there_when_all_of_them_are() -> None:
    parts = [Standing(START, True), Standing(START, False), Standing(START + HOUR, False), Standing(START + HOUR, True)]
    assert not is_met(Group(0, Strength.ANY, None, True), parts, START + HOUR)
    assert is_met(Group(0, Strength.ANY, None, True), [*parts[:2], parts[3], parts[3]], START + HOUR)
    assert lacking(Group(0, Strength.NEWEST, None, True), parts, START + HOUR) == [parts[2]]


@pytest.mark.parametrize(
    ("strength", "text", "waits", "expected"),
    [
        (Strength.ALL, "+-", True, True),
        (Strength.ALL, "-!", True, False),
        (Strength.ALL, "-!", False, True),
        (Strength.ANY, "-!", True, True),
        (Strength.ANY, "!!", True, False),
        (Strength.ANY, "!!", False, True),
        (Strength.NEWEST, "!-", True, True),
        (Strength.NEWEST, "-!", True, False),
        (Strength.NEWEST, "-!", False, True),
    ],
)
def test_until_passes_over_what_is_missing_and_over_what_failed_only_by_its_word(
    strength: Strength, text: str, waits: bool, expected: bool
) -> None:
    assert not met(strength, text, UNTIL - timedelta(microseconds=1), until=UNTIL, waits=waits)
    assert met(strength, text, UNTIL, until=UNTIL, waits=waits) is expected


def test_newest_of_what_has_not_come_is_passed_over() -> None:
    late = [Standing(UNTIL + HOUR, False, True)]
    assert is_met(Group(0, Strength.NEWEST, UNTIL, True), late, UNTIL)


def test_a_group_changes_without_news_only_when_it_says_so() -> None:
    moments = [NEVER + HOUR * number / 2 for number in range(30)]
    for strength, until, text in product(Strength, (None, UNTIL), ("+-+", "-!-", "---", "+++")):
        group, standing = Group(0, strength, until, True), rows(text)
        for before, after in pairwise(moments):
            look = next_look(group, standing, before)
            if look is None or look > after:
                assert is_met(group, standing, before) == is_met(group, standing, after)


@pytest.mark.parametrize(
    ("text", "zone", "trigger", "expected"),
    [
        ("2h", "UTC", "2026-01-02T02:00Z", "2026-01-02T04:00Z"),
        ("90 min", "UTC", "2026-01-02T02:00Z", "2026-01-02T03:30Z"),
        ("06:00", "Europe/Berlin", "2026-01-02T02:00Z", "2026-01-02T05:00Z"),
        ("06:00", "Europe/Berlin", "2026-01-02T05:00Z", "2026-01-03T05:00Z"),
        ("06:00", "Europe/Berlin", "2026-01-01T23:30Z", "2026-01-02T05:00Z"),
        ("02:30", "Europe/Berlin", "2026-03-28T23:00Z", "2026-03-29T01:00Z"),
        ("02:30", "Europe/Berlin", "2026-10-24T23:00Z", "2026-10-25T00:30Z"),
        ("02:30", "Europe/Berlin", "2026-10-25T01:00Z", "2026-10-26T01:30Z"),
    ],
)
def test_until_is_the_first_such_time_behind_the_trigger(text: str, zone: str, trigger: str, expected: str) -> None:
    assert Until.parse(Period.DAY, text).instant(datetime.fromisoformat(trigger), zone) == datetime.fromisoformat(expected)


@pytest.mark.parametrize("text", ["6:00", "24:00", "06:60", "0h", "2", "2 weeks", "32d", "soon", "", "-2h", "999999999d"])
def test_another_until_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="'until' is"):
        Until.parse(Period.DAY, text)


def test_an_hourly_job_has_no_time_of_day() -> None:
    with pytest.raises(ConfigError, match=r"like 2h$"):
        Until.parse(Period.HOUR, "06:00")


def test_a_note_names_some_of_what_was_missing() -> None:
    assert note_of([]) is None
    assert note_of([(UNTIL, ["a"], False)]) == "started without a, because it was not there at 2026-01-02 06:00:00 UTC"
    assert note_of([(UNTIL, ["a", "b"], True)]) == "started without a, b, because they had failed at 2026-01-02 06:00:00 UTC"
    several = note_of([(UNTIL, ["a", "b", "c", "d", "e"], False), (UNTIL, ["f"], True)])
    assert several == (
        "started without a, b, c and 2 more, because they were not there at 2026-01-02 06:00:00 UTC; and without f, because it had failed "
        "at 2026-01-02 06:00:00 UTC"
    )
