"""The lock of a Hive metastore on one table, as Iceberg's Java library takes it, kept alive while a commit works.

The metastore gives a lock to others when nobody has sent a heartbeat for `hive.txn.timeout`. A thread sends them over a connection of its
own. A lock that is lost ends the commit before the swap. A lock that a dead process of this program left is released, when that process
ran on this host; of other locks only the holder is told.
"""

from __future__ import annotations

import getpass
import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hive_metastore.ttypes import (
    CheckLockRequest,
    DataOperationType,
    HeartbeatRequest,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    NoSuchLockException,
    NoSuchTxnException,
    ShowLocksRequest,
    TxnAbortedException,
    UnlockRequest,
)
from pyiceberg.exceptions import CommitFailedException
from thrift.Thrift import TException

from compaction_pipeline.iceberg.catalogs.hive_client import Connect
from compaction_pipeline.iceberg.catalogs.lock_holder import HELD, holder_in, is_gone, is_this_process, new_holder
from compaction_pipeline.iceberg.catalogs.swap_errors import SwapNotAsked

_logger = logging.getLogger(__name__)

_STATES = {LockState.ABORT: "ABORT", LockState.NOT_ACQUIRED: "NOT_ACQUIRED", LockState.WAITING: "WAITING"}

_GONE = (NoSuchLockException, NoSuchTxnException, TxnAbortedException)
"""How a metastore says that a lock is not there any more."""

_LEAST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two questions whether a lock was given. A lock that is given and not noticed keeps writers out for nothing."""

_HEARTBEAT_SECONDS = 10.0
_BEATS_IN_TIMEOUT = 3
"""Heartbeats are sent every ten seconds, and at least three times in the metastore's timeout."""

_LEFT_SECONDS = 600.0
"""A lock of a commit without an answer counts as ours for this long. The metastore takes it away earlier, after `hive.txn.timeout`."""


class HiveLock:
    """An exclusive lock on one table, held by this process."""

    def __init__(self, connect: Connect, database: str, table: str, *, checked: bool = False) -> None:
        """`checked` says that the metastore refuses a swap that comes too late."""
        self._checked = checked
        self._connect = connect
        self._database = database
        self._table = table
        self._holder = new_holder()
        self._id: int | None = None
        self._lost: str | None = None
        self._stop = threading.Event()
        self._beats = threading.Thread(target=self._beat, name=f"heartbeats-{database}.{table}", daemon=True)
        self._leave = False

    @contextmanager
    def held(self, wait_seconds: float) -> Iterator[HiveLock]:
        """Hold the lock in this block.

        Raises CommitFailedException when others hold it for longer than `wait_seconds`, and SwapNotAsked when the metastore does not give
        it for another reason. A lock that cannot be released at the end is left to the metastore's timeout; the block has done its work.
        """
        HELD.add(self._holder.token)
        try:
            self._acquire(wait_seconds)
            self._beats.start()
            yield self
        finally:
            self._stop.set()
            if self._beats.ident is not None:
                # A heartbeat that comes after the lock was released does nothing.
                self._beats.join(timeout=1)
            if self._leave:
                HELD.leave(self._holder.token, _LEFT_SECONDS)
            else:
                self._release()
                HELD.remove(self._holder.token)

    def leave_behind(self) -> None:
        """Do not release the lock at the end of the block: a request may still be carried out, and nobody may commit before it."""
        self._leave = True

    def ensure_held(self, client: Any) -> None:
        """Raise CommitFailedException when the lock is lost. The metastore is asked, which counts as a heartbeat too."""
        if self._lost is None:
            try:
                state = client.check_lock(CheckLockRequest(lockid=self._id)).state
            except _GONE as error:
                self._lost = _text(error)
            else:
                if state == LockState.ACQUIRED:
                    return
                self._lost = f"its state is {_STATES.get(state, state)}"
        raise CommitFailedException(
            f"the metastore took the lock {self._id} on {self._database}.{self._table} away before the swap ({self._lost}): nothing was "
            "committed; when this happens again, raise 'hive.txn.timeout' of the metastore"
        )

    def _acquire(self, wait_seconds: float) -> None:
        component = LockComponent(
            type=LockType.EXCLUSIVE,
            level=LockLevel.TABLE,
            dbname=self._database,
            tablename=self._table,
            # Hive 2.1.0 refuses a lock that does not say what it is for. There is no transaction of Hive.
            operationType=DataOperationType.NO_TXN,
        )
        request = LockRequest(component=[component], user=_user(), hostname=self._holder.host, agentInfo=str(self._holder))
        deadline = time.monotonic() + wait_seconds
        try:
            with self._connect() as client:
                answer = client.lock(request)
                self._id = answer.lockid
                self._wait(client, answer.state, deadline)
        except _GONE as error:
            raise CommitFailedException(f"the metastore took the request for its lock on {self._database}.{self._table} away") from error
        except (TException, OSError) as error:
            raise SwapNotAsked(f"the metastore does not give its lock on {self._database}.{self._table}: {_reason(error)}") from error

    def _wait(self, client: Any, state: int, deadline: float) -> None:
        pause = _LEAST_PAUSE
        while state == LockState.WAITING:
            before_us = self._others(client)
            if time.monotonic() >= deadline:
                raise CommitFailedException(f"the lock on {self._database}.{self._table} is held by {before_us or 'somebody'}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            state = client.check_lock(CheckLockRequest(lockid=self._id)).state
        if state != LockState.ACQUIRED:
            name = _STATES.get(state, state)
            raise CommitFailedException(f"the metastore did not give the lock on {self._database}.{self._table}: its state is {name}")

    def _others(self, client: Any) -> str:
        """Who is before us, in words. Locks that a dead process of ours left are released."""
        said: list[str] = []
        found = self._locks(client)
        for lock in found:
            if self._id is None or lock.lockid >= self._id:
                continue
            holder = holder_in(lock.agentInfo)
            if holder is not None and is_gone(holder) and (self._checked or is_this_process(holder) or _is_old(lock, found)):
                _logger.warning(
                    "lock %s on %s.%s was left by %s, which is gone: released", lock.lockid, self._database, self._table, holder
                )
                _unlock(client, lock.lockid)
            else:
                said.append(f"{lock.user} on {lock.hostname} (lock {lock.lockid}, {lock.agentInfo or 'no agent info'})")
        return ", ".join(said)

    def _locks(self, client: Any) -> list[Any]:
        """All locks on the table."""
        found = client.show_locks(ShowLocksRequest(dbname=self._database, tablename=self._table)).locks or []
        # Old metastores answer with the locks of all tables.
        return [one for one in found if (one.dbname, one.tablename) == (self._database.lower(), self._table.lower())]

    def _release(self) -> None:
        """Unlock, twice if need be. The answer to the request for the lock may have got lost; then the lock is found by our name."""
        for last in (False, True):
            try:
                with self._connect() as client:
                    ids = [self._id] if self._id is not None else self._own(client)
                    for lock_id in ids:
                        _unlock(client, lock_id)
            except (TException, OSError) as error:
                if last:
                    _logger.warning(
                        "lock %s on %s.%s cannot be released (%s): the metastore takes it away after hive.txn.timeout",
                        self._id,
                        self._database,
                        self._table,
                        _text(error),
                    )
            else:
                return

    def _own(self, client: Any) -> list[int]:
        return [one.lockid for one in self._locks(client) if one.agentInfo == str(self._holder)]

    def _beat(self) -> None:
        pause = self._pause()
        while not self._stop.wait(pause):
            try:
                with self._connect() as client:
                    client.heartbeat(HeartbeatRequest(lockid=self._id))
            except _GONE as error:
                self._lost = _text(error)
                return
            except (TException, OSError) as error:
                # The next one may get through. Before the swap the metastore is asked whether the lock is still there.
                _logger.warning("no heartbeat for lock %s on %s.%s: %s", self._id, self._database, self._table, _text(error))

    def _pause(self) -> float:
        """Seconds between two heartbeats."""
        try:
            with self._connect() as client:
                timeout = seconds_of(client.get_config_value("hive.txn.timeout", ""))
        except (TException, OSError) as error:
            _logger.info("the metastore does not tell hive.txn.timeout: %s", _text(error))
            timeout = None
        return _HEARTBEAT_SECONDS if timeout is None else min(_HEARTBEAT_SECONDS, timeout / _BEATS_IN_TIMEOUT)


_UNITS = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millis"), 0.001),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3_600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}


def seconds_of(text: str) -> float | None:
    """A time of Hive's configuration, such as `300s`, in seconds. None when it has no form that is known here."""
    match = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", text.lower())
    unit = _UNITS.get(match[2]) if match else None
    return float(match[1]) * unit if match and unit and int(match[1]) else None


def _is_old(lock: Any, beside: Sequence[Any]) -> bool:
    """Whether no heartbeat has come for so long that a swap under this lock has ended. The metastore's own clock counts: our own request is
    among the locks `beside`, and its time is that of this moment."""
    now = max((one.lastheartbeat or 0 for one in beside), default=0)
    return bool(lock.lastheartbeat) and now - lock.lastheartbeat > _LEFT_SECONDS * 1000


def _unlock(client: Any, lock_id: int) -> None:
    try:
        client.unlock(UnlockRequest(lockid=lock_id))
    except _GONE:
        return


def _reason(error: Exception) -> str:
    text = _text(error)
    if "HIVE_LOCKS" in text.upper():
        return f"{text}; it has no tables for locks: make the schema of its transactions"
    return text


def _text(error: BaseException) -> str:
    text = str(getattr(error, "message", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        # The user of a container often has no name.
        return "compaction-pipeline"
