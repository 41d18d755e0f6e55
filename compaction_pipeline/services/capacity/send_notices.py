"""Sends what people are to be told: each event once to each address, again after a pause when it did not arrive, and for a day at most."""

from __future__ import annotations

import logging
import stat
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from compaction_pipeline.core.capacity.notices.addresses import AddressBook, book_of, check_spelling, unknown_keys
from compaction_pipeline.core.capacity.notices.event import KEPT_FOR, next_try
from compaction_pipeline.core.capacity.notices.ports import Notice, NoticeSender, NoticeStore
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.core.leases.ports import Clock
from compaction_pipeline.core.words import printable
from compaction_pipeline.services.yaml_file import yaml_value

_AT_ONCE = 10
"""So many notices are claimed at once, so that all of them are tried before others may claim them."""
_MOST_BYTES = 2**20
_LOG = logging.getLogger(__name__)


class SendNotices:
    """Verbs: send what is due, which a thread of its own calls, so it delays nothing else; make ready for that, and check the
    file of addresses. Only the server that sends changes the mode of the file."""

    def __init__(
        self,
        store: NoticeStore,
        sender: NoticeSender,
        file: Path | None,
        clock: Clock,
        owners: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """`file` holds the addresses; without one, events get no notices. `owners` are those of all teams."""
        self._store = store
        self._sender = sender
        self._file = file
        self._clock = clock
        self._owners = owners

    def send_due(self) -> int:
        """Send the notices that are due, and return how many arrived. Raises ConfigError when the file of addresses cannot be read."""
        self._store.expire(self._clock() - KEPT_FOR)
        if self._file is None:
            # Another server may know addresses.
            return 0
        self._make_private(self._file)
        book = self.book()
        self._store.spread(book.of, self._clock())
        return sum(self._send(notice, book) for notice in self._store.claim(_AT_ONCE, self._clock()))

    def book(self) -> AddressBook:
        """Read the addresses. Raises ConfigError, which repeats no value of the file."""
        if self._file is None:
            return AddressBook()
        where = f"COMPACTION_NOTICES_FILE is {str(self._file)!r}"
        return book_of(yaml_value(self._file.expanduser(), where, _MOST_BYTES, "addresses of owners"), str(self._file))

    def make_ready(self) -> Sequence[str]:
        """Judge the whole file at the start of a server, and take the rights of others from it. Return warnings.

        Raises as `check`, but an owner that no team has keeps no server from starting, however it is spelled.
        """
        if self._file is None:
            return ()
        self._make_private(self._file)
        return self._judged(self._file, self.book())

    def check(self) -> Sequence[str]:
        """Judge the whole file without sending or changing anything. Return warnings of what may be meant so.

        Raises ConfigError, which names the file, the key and the rule, and never an address.
        """
        if self._file is None:
            return ()
        book = self.book()
        warnings = self._judged(self._file, book)
        if (owners := self._known_owners()) is not None:
            check_spelling(book, owners, str(self._file))
        return warnings

    def _judged(self, file: Path, book: AddressBook) -> Sequence[str]:
        for name in book.urls:
            for number, address in enumerate(book.of_one(name), 1):
                try:
                    self._sender.check(address.url)
                except ConfigError as error:
                    raise ConfigError(f"address {number} of {printable(name, 100)!r} in {file}: {error}") from None
        owners = self._known_owners()
        return [*self._open_to_others(file), *(() if owners is None else unknown_keys(book, owners, str(file)))]

    def _make_private(self, file: Path) -> None:
        """Take the rights of others. Those of its group stay: by them a server may read the file of another user."""
        path = file.expanduser()
        # What this user may not change, such as a mounted secret, stays as it is.
        with suppress(OSError):
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & stat.S_IRWXO:
                path.chmod(mode & ~stat.S_IRWXO)

    def _open_to_others(self, file: Path) -> Sequence[str]:
        mode = stat.S_IMODE(file.expanduser().stat().st_mode)
        if not mode & stat.S_IRWXO:
            return ()
        return [
            f"others may open {str(file)!r} (mode {mode:04o}), and most addresses are secrets: its owner should run `chmod o-rwx {file}`"
        ]

    def _known_owners(self) -> Collection[str] | None:
        """The owners of all teams; None while the state database does not answer, because a server may start before it."""
        try:
            return self._owners()
        except CompactionError:
            return None

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
