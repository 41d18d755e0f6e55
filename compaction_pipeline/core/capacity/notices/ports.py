"""The ports of notices say what the state database remembers of them, where addresses are read, and what sends one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.capacity.notices.addresses import Address, AddressBook
from compaction_pipeline.core.capacity.notices.event import Event


@dataclass(frozen=True, slots=True)
class Notice:
    """An event that is to reach the address of this digest. `tries` counts this try too; `first_at` is when the first one was due."""

    event: Event
    address: str
    recipient: str
    tries: int
    first_at: datetime


@dataclass(frozen=True, slots=True)
class NoticeCounts:
    """What became of the events of a group in the last days. `waiting` counts notices that are still to arrive, and events that have none
    yet. `given_up` counts notices that did not arrive in a day; `why` says why the last of all these did not. `unheard` counts events
    for which nobody had an address."""

    waiting: int = 0
    given_up: int = 0
    unheard: int = 0
    why: str = ""


class NoticeStore(Protocol):
    """The outbox. Inside of the state database, events come into it by `storage.notices.tell` in the transaction that makes them true."""

    def tell(self, event: Event) -> None:
        """Let people be told of an event. One that is there already is not told again."""

    def spread(self, addresses: Callable[[Sequence[str]], Sequence[Address]], now: datetime) -> int:
        """Write down one notice for each new event and address, and return how many. `addresses` answers for the owners of a team."""

    def claim(self, most: int, now: datetime) -> Sequence[Notice]:
        """Return at most so many notices that are due, the oldest first. For a while nobody else gets them."""

    def sent(self, notice: Notice, now: datetime) -> None:
        """Remember that a notice was sent."""

    def failed(self, notice: Notice, why: str, again: datetime | None, now: datetime) -> None:
        """Remember why a notice was not sent, and when it is tried again; None gives it up."""

    def counts(self) -> Mapping[str, NoticeCounts]:
        """Return by group what became of its events. Groups without events are left out."""

    def expire(self, before: datetime) -> int:
        """Remove the events of before this time, with their notices. Return how many."""


class NoticeSender(Protocol):
    """What sends a notice."""

    def check(self, url: str) -> None:
        """Judge an address without sending anything. Raises ConfigError, which says what is wrong, and whose text holds no address."""

    def send(self, url: str, title: str, body: str) -> None:
        """Send it. Raises NoticeNotSent, whose text holds no address."""


class AddressReader(Protocol):
    """Where addresses are kept."""

    def book(self) -> AddressBook:
        """Return them. Raises ConfigError."""
