"""Notices reach a real mail server, a receiver of webhooks that is down for a while, and DingTalk's form of a message."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.header import decode_header, make_header
from pathlib import Path

import pytest
from apprise.plugins.dingtalk import NotifyDingTalk

from compaction_pipeline.core.capacity.notices.event import Event
from compaction_pipeline.core.capacity.team import Team
from compaction_pipeline.core.errors import ConfigError, NoticeNotSent
from compaction_pipeline.core.stores import Stores
from compaction_pipeline.notices.by_apprise import ByApprise
from compaction_pipeline.services.capacity.send_notices import SendNotices
from compaction_pipeline_tests.notices.receivers import Webhook, mail_server, webhook
from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.state import sqlite_stores

NOON = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
EVENT = Event("e1", "scaled out", "heavy", None, NOON, ("20 tasks wait: 2 → 4 optimizers",))


class House:
    """An outbox with a file of addresses, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = NOON
        self.file = folder / "notices.yaml"
        self.stores: Stores = sqlite_stores(folder)
        self.notices = SendNotices(self.stores.notices, ByApprise(), self.file, lambda: self.now)

    def addresses(self, text: str) -> None:
        self.file.write_text(text)

    def later(self, after: timedelta) -> int:
        self.now += after
        return self.notices.send_due()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.fixture
def receiver() -> Iterator[Webhook]:
    with webhook() as received:
        yield received


def test_a_webhook_that_is_down_for_a_while_gets_each_event_once(house: House, receiver: Webhook) -> None:
    house.addresses(f"administrators: json://user:secret@127.0.0.1:{receiver.port}/path")
    receiver.is_down = True
    house.stores.notices.tell(EVENT)
    assert [house.later(timedelta(0)), house.later(timedelta(seconds=29)), house.later(timedelta(seconds=1))] == [0, 0, 0]
    receiver.is_down = False
    assert [house.later(timedelta(seconds=59)), house.later(timedelta(seconds=1)), house.later(timedelta(hours=1))] == [0, 1, 0]
    (got,) = receiver.got
    assert got["title"] == "Group heavy: scaled out"
    assert "2 → 4 optimizers" in str(got["message"])
    assert "event e1" in str(got["message"])


def test_a_receiver_that_stays_down_is_given_up_after_a_day(house: House, receiver: Webhook, caplog: pytest.LogCaptureFixture) -> None:
    house.addresses(f"administrators: json://user:secret@127.0.0.1:{receiver.port}/hidden")
    receiver.is_down = True
    house.stores.notices.tell(EVENT)
    with caplog.at_level(logging.DEBUG):
        for _ in range(31):
            house.later(timedelta(hours=1))
    receiver.is_down = False
    assert [house.later(timedelta(hours=1)) for _ in range(3)] == [0, 0, 0]
    said = [record.getMessage() for record in caplog.records if record.name.startswith("compaction_pipeline")]
    assert "is given up" in said[-1]
    assert not any("secret" in line or "hidden" in line for line in said)


def test_mail_goes_to_the_owners_of_the_team(house: House, receiver: Webhook) -> None:
    port = free_port()
    house.addresses(
        f"ann: mailto://127.0.0.1:{port}?from=compaction@example.org&to=ann@example.org&mode=insecure\n"
        f"administrators: json://127.0.0.1:{receiver.port}"
    )
    house.stores.teams.put(Team("shop", ("ann", "bob")), "somebody", NOON)
    house.stores.notices.tell(Event("e2", "rolled back", "heavy", "shop", NOON, ("it was killed for memory twice",)))
    with mail_server(port) as mails:
        assert house.later(timedelta(0)) == 1
    ((recipient, subject, text),) = mails
    assert recipient == "ann@example.org"
    assert str(make_header(decode_header(subject))) == "Group heavy: rolled back"
    assert "it was killed for memory twice" in text
    assert "event e2" in text
    assert receiver.got == []


def test_dingtalk_gets_its_own_form(house: House, receiver: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NotifyDingTalk, "notify_url", f"http://127.0.0.1:{receiver.port}/robot/send?access_token={{token}}")
    house.addresses("administrators: dingtalk://abcdef0123456789abcdef0123456789")
    house.stores.notices.tell(EVENT)
    assert house.later(timedelta(0)) == 1
    (got,) = receiver.got
    assert got["msgtype"] in ("text", "markdown")
    assert "event e1" in str(got)


def test_one_receiver_that_is_down_keeps_no_other_from_being_told(house: House, receiver: Webhook) -> None:
    house.addresses(f"administrators: [json://127.0.0.1:1, json://127.0.0.1:{receiver.port}, nothing://of/this/kind]")
    house.stores.notices.tell(EVENT)
    assert house.later(timedelta(0)) == 1
    assert len(receiver.got) == 1


def test_an_address_that_left_the_file_is_not_used(house: House, receiver: Webhook) -> None:
    house.addresses(f"administrators: json://127.0.0.1:{receiver.port}")
    receiver.is_down = True
    house.stores.notices.tell(EVENT)
    house.later(timedelta(0))
    receiver.is_down = False
    house.addresses("administrators: json://127.0.0.1:1")
    assert house.later(timedelta(hours=1)) == 0
    assert receiver.got == []


def test_without_a_file_nothing_is_sent(house: House) -> None:
    house.stores.notices.tell(EVENT)
    assert SendNotices(house.stores.notices, ByApprise(), None, lambda: NOON).send_due() == 0


def test_the_errors_of_sending_hold_no_address() -> None:
    with pytest.raises(NoticeNotSent, match="the receiver of a notice by json did not answer"):
        ByApprise().send("json://user:secret@127.0.0.1:1/path", "title", "body")
    with pytest.raises(ConfigError, match="no address of the form strange://"):
        ByApprise().send("strange://secret", "title", "body")
