"""What a notice says, when it is tried again, and whom it reaches."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from compaction_pipeline.core.capacity.notices.addresses import ADMINISTRATORS, Address, book_of
from compaction_pipeline.core.capacity.notices.event import Event, next_try
from compaction_pipeline.core.errors import ConfigError

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)


def test_a_notice_holds_the_lines_the_time_and_the_id() -> None:
    event = Event("e1", "scaled out", "heavy", None, NOON, ("2 → 4 optimizers", "a line\nof somebody\x1b[0m else"))
    assert event.title == "Group heavy: scaled out"
    assert event.body == "2 → 4 optimizers\na line\\nof somebody\\x1b[0m else\n2026-11-27 12:00:00 UTC, event e1"
    assert "and 1 more line" in Event("e1", "scaled", "heavy", None, NOON, ("x",) * 51).body


def test_a_notice_is_tried_for_a_day_with_growing_pauses() -> None:
    at, pauses = NOON, []
    while (again := next_try(len(pauses) + 1, NOON, at)) is not None:
        pauses.append(again - at)
        at = again
    assert pauses[:4] == [timedelta(seconds=30), timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=4)]
    assert set(pauses[7:]) == {timedelta(hours=1)}
    assert timedelta(hours=23) < at - NOON <= timedelta(hours=24)


def test_owners_are_told_and_else_administrators() -> None:
    book = book_of({"ann": ["json://a", "json://b", "json://a"], "bob": "json://c", ADMINISTRATORS: "json://d"}, "the file")
    assert book.of(["bob", "ann", "bob", "nobody"]) == [Address("bob", "json://c"), Address("ann", "json://a"), Address("ann", "json://b")]
    assert book.of(["nobody"]) == book.of([]) == [Address(ADMINISTRATORS, "json://d")]
    assert book_of(None, "the file").of(["ann"]) == []
    assert book.find(Address("ann", "json://b").digest) == Address("ann", "json://b")
    assert book.find(Address("bob", "json://b").digest) is None


def test_no_text_shows_an_address() -> None:
    book = book_of({"ann": "json://user:secret@host"}, "the file")
    assert "secret" not in f"{book!r} {book.of(['ann'])!r}"


@pytest.mark.parametrize(
    "read", [["secret"], {"ann": "secret"}, {"ann": []}, {"ann": ["json://x"] * 21}, {"ann": {"a": "secret"}}, {1: "json://x"}]
)
def test_a_bad_file_is_named_without_its_values(read: object) -> None:
    with pytest.raises(ConfigError) as error:
        book_of(read, "the file")
    assert "the file" in str(error.value)
    assert "secret" not in str(error.value)
