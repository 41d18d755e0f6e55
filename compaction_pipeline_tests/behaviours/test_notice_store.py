"""The outbox of notices: each event reaches each address once it was sent, and is tried again until then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.capacity.notices.addresses import Address
from compaction_pipeline.core.capacity.notices.event import CLAIMED_FOR, Event
from compaction_pipeline.core.capacity.notices.ports import NoticeCounts
from compaction_pipeline.core.capacity.team import Team
from compaction_pipeline.core.stores import Stores

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
EVENT = Event("e1", "scaled out", "heavy", None, NOON, ("2 → 4 optimizers",))
ANN, BOB = Address("ann", "json://a"), Address("bob", "json://b")


def _both(owners: Sequence[str]) -> Sequence[Address]:
    return (ANN, BOB)


def test_an_event_is_told_once_to_each_address(stores: Stores) -> None:
    notices = stores.notices
    notices.tell(EVENT)
    notices.tell(replace(EVENT, kind="told again"))
    assert notices.spread(_both, NOON) == 2
    assert notices.spread(_both, NOON) == 0
    found = notices.claim(10, NOON)
    assert {(each.event, each.address, each.tries, each.first_at) for each in found} == {
        (EVENT, ANN.digest, 1, NOON),
        (EVENT, BOB.digest, 1, NOON),
    }
    for each in found:
        notices.sent(each, NOON)
    assert notices.claim(10, NOON + timedelta(days=1)) == []


def test_the_owners_of_the_team_are_asked_for(stores: Stores) -> None:
    stores.teams.put(Team("shop", ("ann", "bob")), "somebody", NOON)
    asked: list[Sequence[str]] = []
    for number, team in enumerate(("shop", None, "gone")):
        stores.notices.tell(replace(EVENT, event_id=f"e{number}", team=team, at=NOON + timedelta(seconds=number)))
    stores.notices.spread(lambda owners: asked.append(tuple(owners)) or (), NOON)  # type: ignore[func-returns-value]
    assert asked == [("ann", "bob"), (), ()]


def test_a_claimed_notice_is_nobody_elses_until_its_server_is_late(stores: Stores) -> None:
    notices = stores.notices
    notices.tell(EVENT)
    notices.spread(lambda owners: (ANN,), NOON)
    assert len(notices.claim(1, NOON)) == 1
    assert notices.claim(1, NOON + CLAIMED_FOR - timedelta(seconds=1)) == []
    (again,) = notices.claim(1, NOON + CLAIMED_FOR)
    assert again.tries == 2


def test_a_notice_that_failed_is_due_again_or_given_up(stores: Stores) -> None:
    notices = stores.notices
    notices.tell(EVENT)
    notices.spread(lambda owners: (ANN,), NOON)
    (first,) = notices.claim(1, NOON)
    notices.failed(first, "it is down", NOON + timedelta(seconds=30), NOON)
    assert notices.claim(1, NOON + timedelta(seconds=29)) == []
    (second,) = notices.claim(1, NOON + timedelta(seconds=30))
    notices.failed(second, "it is down", None, NOON)
    assert notices.claim(1, NOON + timedelta(days=2)) == []


def test_what_was_sent_is_not_tried_again_by_a_late_failure(stores: Stores) -> None:
    notices = stores.notices
    notices.tell(EVENT)
    notices.spread(lambda owners: (ANN,), NOON)
    (first,) = notices.claim(1, NOON)
    notices.sent(first, NOON)
    notices.failed(first, "another server was slower", NOON, NOON)
    assert notices.claim(1, NOON + timedelta(days=1)) == []


def test_old_events_go_with_their_notices(stores: Stores) -> None:
    notices = stores.notices
    notices.tell(EVENT)
    notices.tell(replace(EVENT, event_id="e2", at=NOON + timedelta(hours=1)))
    notices.spread(lambda owners: (ANN,), NOON)
    assert notices.expire(NOON + timedelta(minutes=1)) == 1
    assert [each.event.event_id for each in notices.claim(10, NOON)] == ["e2"]


def test_people_see_by_group_what_is_still_to_arrive_what_never_did_and_what_nobody_was_told(stores: Stores) -> None:
    notices = stores.notices
    assert notices.counts() == {}
    notices.tell(EVENT)
    notices.tell(replace(EVENT, event_id="e2", group="light"))
    # Nobody knows yet at which addresses.
    assert notices.counts() == {"heavy": NoticeCounts(waiting=1), "light": NoticeCounts(waiting=1)}
    notices.spread(_both, NOON)
    assert notices.counts()["heavy"] == NoticeCounts(waiting=2)
    of_heavy = [each for each in notices.claim(10, NOON) if each.event.group == "heavy"]
    notices.sent(of_heavy[0], NOON)
    assert notices.counts()["heavy"] == NoticeCounts(waiting=1)
    notices.failed(of_heavy[1], "no answer", NOON + timedelta(minutes=1), NOON)
    assert notices.counts()["heavy"] == NoticeCounts(waiting=1, why="no answer")
    notices.failed(of_heavy[1], "still no answer", None, NOON)
    assert notices.counts()["heavy"] == NoticeCounts(given_up=1, why="still no answer")
    notices.tell(replace(EVENT, event_id="e3", at=NOON + timedelta(minutes=2)))
    notices.spread(lambda owners: (), NOON)
    assert notices.counts()["heavy"] == NoticeCounts(given_up=1, unheard=1, why="still no answer")
    assert notices.counts()["light"] == NoticeCounts(waiting=2)
