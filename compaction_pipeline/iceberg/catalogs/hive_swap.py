"""Swaps the pointer of one table in a Hive metastore, and finds out how a swap ended that had no clear answer.

The table must be that which was looked at, before the metadata is written and again when the metastore swaps. The new metadata file is
deleted as soon as it is certain that nothing was committed, and stays while nobody knows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from typing import Any

from hive_metastore.ttypes import EnvironmentContext
from pyiceberg.catalog.hive import (
    DO_NOT_UPDATE_STATS,
    DO_NOT_UPDATE_STATS_DEFAULT,
    HIVE2_COMPATIBLE,
    HIVE2_COMPATIBLE_DEFAULT,
    _construct_hive_storage_descriptor,
)
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.utils.properties import property_as_bool
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TException
from thrift.transport.TTransport import TTransportException

from compaction_pipeline.core.commit.answers import Answer
from compaction_pipeline.core.commit.hive import Guard, of_hive
from compaction_pipeline.iceberg.catalogs.hive_lock import HiveLock
from compaction_pipeline.iceberg.catalogs.hive_metastore import HiveMetastore
from compaction_pipeline.iceberg.catalogs.hive_tables import METADATA_LOCATION, metadata_location, set_committed
from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits
from compaction_pipeline.iceberg.catalogs.swap_errors import SwapNotAsked, SwapRefused
from compaction_pipeline.iceberg.deletions import delete_quietly

_logger = logging.getLogger(__name__)

_LOOKS = (0.0, 0.5, 2.0)
"""Seconds before each look at a table whose swap had no answer. A metastore that starts again needs a moment."""


class _Fate(Enum):
    """What the table shows of a swap."""

    LANDED = "landed"
    """Its metadata is ours, or continues ours."""
    OVERTAKEN = "overtaken"
    """Another commit was made on the metadata that ours was made on."""
    UNMOVED = "unmoved"
    """Its metadata is that which ours was made on."""
    HIDDEN = "hidden"
    """The table cannot be read, is gone, is another one, or does not tell."""


class HiveSwap:
    """One swap. `looked_at` is the table that the commit was built on, and `lock` is held until the swap has ended, where one is taken."""

    def __init__(
        self,
        catalog: HiveMetastore,
        limits: RequestLimits,
        name: tuple[str, str],
        looked_at: Table,
        guard: Guard,
        lock: HiveLock | None,
    ) -> None:
        self._catalog = catalog
        self._limits = limits
        self._name = name
        self._base = looked_at.metadata_location
        self._uuid = looked_at.metadata.table_uuid
        self._guard = guard
        self._lock = lock

    def made(self, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]) -> CommitTableResponse:
        """Write the metadata and swap the pointer, if the table is still that which was looked at. Raises as `commit_table`."""
        with self._before_the_swap(), self._catalog.connect() as client:
            row = self._catalog.row(client, self._name)
        if metadata_location(row) != self._base:
            raise CommitFailedException(
                f"the metadata of table {self} is {metadata_location(row)}, and not {self._base}, which was looked at"
            )
        current = self._catalog.as_iceberg(row)
        staged = self._catalog.staged(current, requirements, updates)
        if staged.metadata == current.metadata:
            return CommitTableResponse(metadata=current.metadata, metadata_location=current.metadata_location)
        try:
            self._write(staged)
            self._swap(self._row_after(row, current, staged), staged)
        except (CommitFailedException, SwapNotAsked, SwapRefused):
            delete_quietly(staged, [staged.metadata_location])
            raise
        return CommitTableResponse(metadata=staged.metadata, metadata_location=staged.metadata_location)

    def __str__(self) -> str:
        return ".".join(self._name)

    @contextmanager
    def _before_the_swap(self) -> Iterator[None]:
        """Raise SwapNotAsked or SwapRefused when the metastore fails in this block, which does not ask it to swap."""
        try:
            yield
        except NoSuchTableError as error:
            raise SwapRefused(f"table {self} is not there any more") from error
        except (TException, OSError) as error:
            raise SwapNotAsked(f"the metastore did not answer as it should before the swap of table {self}: {_text(error)}") from error

    def _write(self, staged: StagedTable) -> None:
        try:
            self._catalog.write(staged)
        except Exception as error:  # A FileIO raises errors of many types.
            raise SwapNotAsked(
                f"the new metadata file {staged.metadata_location} cannot be written: {error}; "
                "free space, or allow the program to write there"
            ) from error

    def _row_after(self, row: Any, current: Table, staged: StagedTable) -> Any:
        set_committed(row, current, staged.metadata, staged.metadata_location)
        if staged.metadata.current_schema_id != current.metadata.current_schema_id:
            hive2 = property_as_bool(self._catalog.properties, HIVE2_COMPATIBLE, HIVE2_COMPATIBLE_DEFAULT)
            row.sd.cols = _construct_hive_storage_descriptor(staged.schema(), staged.location(), hive2).cols
        return row

    def _swap(self, row: Any, staged: StagedTable) -> None:
        expected = {
            DO_NOT_UPDATE_STATS: DO_NOT_UPDATE_STATS_DEFAULT,
            "expected_parameter_key": METADATA_LOCATION,
            "expected_parameter_value": self._base,
        }
        with ExitStack() as opened:
            with self._before_the_swap():
                connection = self._catalog.connect()
                client = opened.enter_context(connection)
                if self._lock is not None:
                    self._lock.ensure_held(client)
            connection.patience(self._limits.commit_seconds)
            try:
                client.alter_table_with_environment_context(*self._name, row, EnvironmentContext(properties=expected))
            except Exception as error:  # What it proves is decided below.
                failure = error
            except BaseException:
                self._keep_others_out()
                raise
            else:
                return
        self._settle(failure, staged)

    def _settle(self, failure: Exception, staged: StagedTable) -> None:
        """Find out how a failed swap ended. Returns when it landed, and raises otherwise."""
        said = _text(failure)
        is_answer = isinstance(failure, TException) and not isinstance(failure, (TTransportException, TProtocolException))
        answer = of_hive(type(failure).__name__, said) if is_answer else Answer.UNKNOWN
        fate = self._fate(staged)
        _logger.warning(
            "table=%s the swap failed (%s: %s), and the table shows that it is %s", self, type(failure).__name__, said, fate.value
        )
        if fate is _Fate.LANDED:
            return
        if answer is Answer.LOST_RACE and fate is _Fate.OVERTAKEN:
            raise CommitFailedException(f"another writer was faster: {said}") from failure
        if answer is Answer.REFUSED and fate is _Fate.UNMOVED:
            raise SwapRefused(said) from failure
        if not is_answer:
            self._keep_others_out()
        raise CommitStateUnknownException(f"{type(failure).__name__}: {said}") from failure

    def _keep_others_out(self) -> None:
        """Leave the lock to its timeout: the metastore may still swap, and nothing else would keep it from undoing a commit of others."""
        if self._lock is not None and not self._guard.checked:
            self._lock.leave_behind()

    def _fate(self, staged: StagedTable) -> _Fate:
        fate = _Fate.HIDDEN
        for pause in _LOOKS:
            time.sleep(pause)
            try:
                fate = self._look(staged)
            except Exception as error:  # A metastore, a FileIO and a decoder raise errors of many types.
                _logger.warning("table=%s cannot be looked at after a failed swap: %s", self, error)
                continue
            if fate is not _Fate.UNMOVED:
                return fate
        return fate

    def _look(self, staged: StagedTable) -> _Fate:
        with self._catalog.connect() as client:
            row = self._catalog.row(client, self._name)
        location = metadata_location(row)
        if location == staged.metadata_location:
            return _Fate.LANDED
        if location == self._base:
            return _Fate.UNMOVED
        now = self._catalog.as_iceberg(row)
        named = [entry.metadata_file for entry in now.metadata.metadata_log]
        if now.metadata.table_uuid != self._uuid:
            return _Fate.HIDDEN
        if staged.metadata_location in named:
            return _Fate.LANDED
        # The log forgets its oldest entries. While it has the metadata that ours was made on, it has what followed.
        return _Fate.OVERTAKEN if self._base in named else _Fate.HIDDEN


def _text(error: BaseException) -> str:
    text = str(getattr(error, "message", None) or error).strip()
    return text.splitlines()[0] if text else type(error).__name__
