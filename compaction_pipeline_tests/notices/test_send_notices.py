"""Notices reach a real mail server, a receiver of webhooks that is down for a while, and DingTalk's form of a message."""

from __future__ import annotations

import logging
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.header import decode_header, make_header
from pathlib import Path

import pytest
from apprise import Apprise
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
        self.notices = SendNotices(self.stores.notices, ByApprise(), self.file, lambda: self.now, self._owners)

    def _owners(self) -> frozenset[str]:
        return frozenset(owner for team in self.stores.teams.teams() for owner in team.owners)

    def checked(self) -> list[str]:
        return list(self.notices.check())

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.file.stat().st_mode)

    def addresses(self, text: str) -> None:
        self.file.write_text(text)
        self.file.chmod(0o600)

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


def test_a_good_file_is_checked_without_sending_and_loses_the_rights_of_others_by_the_server(house: House, receiver: Webhook) -> None:
    house.stores.teams.put(Team("shop", ("ann",)), "somebody", NOON)
    house.addresses(
        f"administrators: json://user:secret@127.0.0.1:{receiver.port}\nann: mailto://127.0.0.1?from=c@example.org&to=ann@example.org"
    )
    house.file.chmod(0o644)
    (warning,) = house.checked()
    assert f"others may open {str(house.file)!r} (mode 0644)" in warning
    assert house.mode == 0o644, "whoever checks may be another user than the one that sends"
    assert house.notices.make_ready() == []
    assert house.mode == 0o640, "the server may read the file by its group"
    assert house.checked() == []
    house.file.chmod(0o604)
    house.later(timedelta(0))
    assert house.mode == 0o600
    assert receiver.got == []


def test_a_file_whose_rights_cannot_be_taken_is_warned_of(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, mode: int) -> None:
        raise PermissionError

    house.addresses("administrators: json://127.0.0.1")
    house.file.chmod(0o644)
    monkeypatch.setattr(Path, "chmod", refuse)
    (warning,) = house.notices.make_ready()
    assert f"others may open {str(house.file)!r} (mode 0644)" in warning
    assert f"chmod o-rwx {house.file}" in warning


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nothing://secret", "apprise knows no address of the form nothing://…"),
        ("secret of ours://host", "apprise knows no address of the form …://…"),
        ("slack://secret", "apprise knows the form slack://…, but a part of the address is missing or wrong"),
        ("json://:secret@", "apprise knows the form json://…, but a part of the address is missing or wrong"),
    ],
)
def test_an_address_that_cannot_be_sent_to_is_found_before_anything_is_sent(house: House, address: str, why: str) -> None:
    house.addresses(f"administrators: [json://127.0.0.1, '{address}']")
    with pytest.raises(ConfigError) as refused:
        house.checked()
    assert str(refused.value).startswith(f"address 2 of 'administrators' in {house.file}: {why}; ")
    assert "correct the address" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("administrators: json://127.0.0.1\n'json://user:s3cret@host/x': 'mailto://ann@shop'", "key 2 of {} has '://'"),
        ("json://user:s3cret@host/x: ann", "key 1 of {} has '://'"),
        ("? !!binary anNvbjovL3VzZXI6czNjcmV0QGhvc3Q=\n: json://host", "key 1 of {} has '://'"),
        ("json://user:s3cret@host/x: ann\njson://user:s3cret@host/x: bob", "a key stands twice in one mapping in line 2"),
    ],
)
def test_an_address_that_stands_where_a_key_belongs_is_not_repeated(house: House, text: str, says: str) -> None:
    house.addresses(text)
    with pytest.raises(ConfigError) as refused:
        house.checked()
    assert says.format(house.file) in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "host/x" not in str(refused.value)


def test_a_misspelled_key_of_administrators_is_refused_unless_a_team_has_this_owner(house: House) -> None:
    house.addresses("administrator: json://user:secret@127.0.0.1")
    with pytest.raises(ConfigError) as refused:
        house.checked()
    assert f"'administrator' of {house.file} must be 'administrators' or an owner of a team" in str(refused.value)
    assert "did you mean 'administrators'?" in str(refused.value)
    assert "secret" not in str(refused.value)
    # A server starts all the same.
    assert house.notices.make_ready() == [str(refused.value)]
    house.stores.teams.put(Team("shop", ("administrator",)), "somebody", NOON)
    assert house.checked() == []
    assert house.notices.make_ready() == []


@pytest.mark.parametrize("key", ["Administrators", "administrators ", "adminstrators", "admnistrator", "administratosr"])
def test_a_misspelling_of_administrators_is_told_from_an_owner(house: House, key: str) -> None:
    house.addresses(f"{key!r}: json://127.0.0.1")
    with pytest.raises(ConfigError, match="did you mean 'administrators'"):
        house.checked()


@pytest.mark.parametrize("key", ["administrators@shop.example", "administrators@", "administration", "admins", "registrators", "minister"])
def test_an_owner_that_left_all_teams_is_no_misspelling_of_administrators(house: House, key: str) -> None:
    house.addresses(f"{key!r}: json://127.0.0.1")
    (warning,) = house.checked()
    assert warning.startswith(f"{key!r} of {house.file} is no owner of a team")
    assert house.notices.make_ready() == [warning]


def test_a_form_whose_package_is_missing_is_told_from_one_that_apprise_does_not_know(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def details(_: Apprise, **__: bool) -> dict[str, object]:
        def form(name: str, *needs: str) -> dict[str, object]:
            return {"protocols": [name], "secure_protocols": None, "enabled": False, "requirements": {"packages_required": needs}}

        return {"schemas": [form("mqtt", "paho-mqtt >= 2.1.0"), form("windows")]}

    monkeypatch.setattr(Apprise, "add", lambda _, __: False)
    monkeypatch.setattr(Apprise, "details", details)
    for form, says in (
        ("mqtt", "apprise needs the Python package paho-mqtt >= 2.1.0: install it, or correct the address"),
        ("windows", "apprise cannot do so on this host: use another form, or correct the address"),
        ("nothing", "apprise knows no address of the form nothing://…"),
    ):
        with pytest.raises(ConfigError) as refused:
            ByApprise().check(f"{form}://user:secret@host/topic")
        assert says in str(refused.value)
        assert "secret" not in str(refused.value)


def test_an_owner_that_no_team_has_yet_is_warned_of(house: House) -> None:
    house.addresses("administrators: json://127.0.0.1\nann: json://user:secret@127.0.0.1")
    (warning,) = house.checked()
    assert f"'ann' of {house.file} is no owner of a team, so nobody is told at its addresses" in warning
    assert "secret" not in warning


def test_the_errors_of_sending_hold_no_address() -> None:
    with pytest.raises(NoticeNotSent, match="the receiver of a notice by json did not answer"):
        ByApprise().send("json://user:secret@127.0.0.1:1/path", "title", "body")
    with pytest.raises(ConfigError, match="no address of the form strange://"):
        ByApprise().send("strange://secret", "title", "body")
