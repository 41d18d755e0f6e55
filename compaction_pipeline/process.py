"""What use cases need of the process that they run in.

A thread renews leases, a block is not cut by an interrupt, and no log holds a secret that the process knows.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from compaction_pipeline.core.errors import CompactionError
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.core.leases.timeouts import RENEWAL_INTERVAL

log = logging.getLogger(__name__)


def hide_secrets_in_logs() -> None:
    """Let no log of this process, of whatever library, hold a secret that the process knows. A second call changes nothing.

    Handlers and formatters of others never see the secret, because each record is made without it.
    """
    before = logging.getLogRecordFactory()
    if getattr(before, "hides_secrets", False):
        return

    def made(*given: Any, **named: Any) -> logging.LogRecord:
        record = before(*given, **named)
        _hide_secrets(record)
        return record

    made.hides_secrets = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(made)


def _hide_secrets(record: logging.LogRecord) -> None:
    try:
        said = record.getMessage()
    except Exception:
        # The handler tells of a message that does not fit its values.
        return
    if masked_text(said) != said:
        # Some formatters ask for the values themselves, so they keep their number.
        if isinstance(record.args, tuple):
            record.args = tuple(masked_text(each) if isinstance(each, str) else each for each in record.args)
        hidden = masked_text(record.getMessage())
        if hidden != record.getMessage():
            record.msg, record.args = hidden, None
    if record.exc_info and record.exc_info[0] is not None:
        trace = _PLAIN.formatException(record.exc_info)
        hidden = masked_text(trace)
        if hidden != trace:
            # Formatters write this text, and make none of the error.
            record.exc_text = hidden


_PLAIN = logging.Formatter()


@contextmanager
def heartbeat(renew: Callable[[], object], every: timedelta = RENEWAL_INTERVAL) -> Iterator[None]:
    """Call `renew` in a thread again and again until the block ends; see `Heartbeat` in `core/leases/ports.py`."""
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(every.total_seconds()):
            try:
                renew()
            except CompactionError as error:
                log.warning("leases not renewed: %s", error)
            except Exception:
                # Without heartbeats everything that this process does would be taken from it.
                log.exception("leases not renewed")

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay Ctrl-C, or a request to end, until the block is over. A second one gets through at once."""
    if threading.current_thread() is not threading.main_thread():
        # Python interrupts only the main thread.
        yield
        return
    came: list[int] = []
    before: dict[int, Any] = {}

    def restore() -> None:
        while before:
            signal.signal(*before.popitem())

    def note(number: int, frame: object) -> None:
        if came:
            restore()
            signal.raise_signal(number)
            return
        came.append(number)
        log.warning("a commit is under way: this process ends after it")

    for number in (signal.SIGINT, signal.SIGTERM):
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_IGN, None):
            before[number] = handler
            signal.signal(number, note)
    try:
        yield
    finally:
        interrupted = bool(came and before)
        restore()
        if interrupted:
            signal.raise_signal(came[0])
