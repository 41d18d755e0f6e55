"""Sends what people are to be told: each event once to each address, again after a pause when it did not arrive, and for a day at most."""

from __future__ import annotations

import logging
from pathlib import Path

from compaction_pipeline.core.capacity.notices.addresses import AddressBook, book_of
from compaction_pipeline.core.capacity.notices.event import KEPT_FOR, next_try
from compaction_pipeline.core.capacity.notices.ports import Notice, NoticeSender, NoticeStore
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.services.yaml_file import yaml_value

_AT_ONCE = 10
"""So many notices are claimed at once, so that all of them are tried before others may claim them."""
_MOST_BYTES = 2**20
_LOG = logging.getLogger(__name__)


class SendNotices:
    """One verb: send what is due. A thread of its own calls it, so it delays nothing else."""

    def __init__(self, store: NoticeStore, sender: NoticeSender, file: Path | None, clock: Clock) -> None:
        """`file` holds the addresses; without one, events get no notices."""
        self._store = store
        self._sender = sender
        self._file = file
        self._clock = clock

    def send_due(self) -> int:
        """Send the notices that are due, and return how many arrived. Raises ConfigError when the file of addresses cannot be read."""
        self._store.expire(self._clock() - KEPT_FOR)
        if self._file is None:
            # Another server may know addresses.
            return 0
        book = self.book()
        self._store.spread(book.of, self._clock())
        return sum(self._send(notice, book) for notice in self._store.claim(_AT_ONCE, self._clock()))

    def book(self) -> AddressBook:
        """Read the addresses. Raises ConfigError, which repeats no value of the file."""
        if self._file is None:
            return AddressBook()
        where = f"COMPACTION_NOTICES_FILE is {str(self._file)!r}"
        return book_of(yaml_value(self._file.expanduser(), where, _MOST_BYTES, "addresses of owners"), str(self._file))

    def _send(self, notice: Notice, book: AddressBook) -> bool:
        address = book.find(notice.address)
        try:
            if address is None:
                raise ConfigError(f"the file of addresses no longer has this address of {notice.recipient}")
            self._sender.send(address.url, notice.event.title, notice.event.body)
        except CompactionError as error:
            now = self._clock()
            again = next_try(notice.tries, notice.first_at, now)
            self._store.failed(notice, str(error), again, now)
            what = "is given up" if again is None else f"is tried again at {again:%H:%M:%S} UTC"
            _LOG.warning("the notice of event %s to %s %s: %s", notice.event.event_id, notice.recipient, what, error)
            return False
        self._store.sent(notice, self._clock())
        return True
