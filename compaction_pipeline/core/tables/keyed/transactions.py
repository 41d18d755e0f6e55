"""Transactions of a keyed table that have begun, and which of them may still bring changes.

A writer such as Amoro's for Spark gets its transaction before it writes: by an empty commit to the change store, whose sequence number is
the transaction. Its changes land later, with a higher data sequence number. Until then they must not be passed over: what is merged into
the base store counts as later than they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.keyed.file_names import base_file, change_file

BEGIN_KEY = "tx.begin.signature"
"""A snapshot of the change store whose summary has this key begins a transaction."""
OVERWRITE_BEGIN_KEY = "compaction.overwrite"
"""A begin snapshot whose summary has this key too was made by an insert-overwrite of this program. It never brings change files."""
OVERWRITE_KEY = "txId"
"""The summary of a base snapshot names under this key the transaction that it ends."""
TRANSACTION_TIMEOUT_KEY = "compaction.transaction.timeout"
"""The property that says for how long a begun transaction may hold changes back, in ms."""
DEFAULT_TRANSACTION_TIMEOUT = timedelta(hours=1)
_MOST_TIMEOUT_MS = 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class BegunTransaction:
    """A transaction whose begin snapshot is still in the metadata, and the time of that snapshot.

    `brings_changes` is False when it will bring base files only.
    """

    transaction_id: int
    begun_at: datetime
    brings_changes: bool = True


def open_transactions(
    begun: Iterable[BegunTransaction], ended: Collection[int], now: datetime, timeout: timedelta = DEFAULT_TRANSACTION_TIMEOUT
) -> tuple[BegunTransaction, ...]:
    """The transactions that may still bring changes, by ascending number. `ended` are those that a file or a base snapshot names.

    One that began `timeout` ago, or longer, counts as given up. When it lands all the same, it is late.
    """
    still = {each.transaction_id: each for each in begun if each.transaction_id not in ended and now - each.begun_at < timeout}
    return tuple(still[number] for number in sorted(still))


def carried_transactions(base: Iterable[LiveFile], changes: Iterable[LiveFile]) -> frozenset[int]:
    """The transactions that the names of these live files tell: they have landed. Raises TableRefused for a name that cannot be."""
    of_base = {base_file(file.path).transaction_id for file in base if file.is_data}
    return frozenset(of_base | {change_file(file.path, file.data_sequence_number).transaction_id for file in changes})


def transaction_timeout(properties: Mapping[str, str]) -> timedelta:
    """For how long a begun transaction may hold changes back. Raises ConfigError for a value that is no number of ms above 0."""
    text = properties.get(TRANSACTION_TIMEOUT_KEY)
    if text is None:
        return DEFAULT_TRANSACTION_TIMEOUT
    if not text.strip().isdecimal() or not 0 < int(text) <= _MOST_TIMEOUT_MS:
        raise ConfigError(f"'{TRANSACTION_TIMEOUT_KEY}' is {text!r} but must be a whole number of ms in 1..{_MOST_TIMEOUT_MS}")
    return timedelta(milliseconds=int(text))
