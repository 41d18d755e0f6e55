"""Rows of tables. A row holds five values of a table; this module turns each value into columns, and a row into the values."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

from compaction_pipeline.core.commit.table_commits import TableCommits
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.known_table import KnownTable
from compaction_pipeline.core.planning.table_planning import TablePlanning
from compaction_pipeline.core.tables.index import (
    Complete,
    Empty,
    Failed,
    IndexState,
    LoadedTable,
    Reading,
    Refused,
    TableIndex,
    Unread,
    WholeRead,
)
from compaction_pipeline.core.tables.switch import TableSwitch
from compaction_pipeline.core.tables.table import ChangeHead, TableIdentifier
from compaction_pipeline.storage.columns import StoredRow


class IndexStateName(str, Enum):
    """The name of an index's state, as a row stores it."""

    UNREAD = "UNREAD"
    READING = "READING"
    COMPLETE = "COMPLETE"
    EMPTY = "EMPTY"
    REFUSED = "REFUSED"
    FAILED = "FAILED"


_NAMES: dict[type[IndexState], IndexStateName] = {
    Unread: IndexStateName.UNREAD,
    Reading: IndexStateName.READING,
    Complete: IndexStateName.COMPLETE,
    Empty: IndexStateName.EMPTY,
    Refused: IndexStateName.REFUSED,
    Failed: IndexStateName.FAILED,
}

identifier_of = lru_cache(65_536)(TableIdentifier.parse)
"""Parses the identifier in a row. Results are cached, because each tick reads the identifiers of all tables."""


def unknown(table: TableIdentifier) -> NotFoundError:
    """The error for a table without a row."""
    return NotFoundError(f"table {table} is not known; `compaction-pipeline table list` shows those that are")


def index_columns(index: TableIndex) -> dict[str, object]:
    """All columns of a table's index."""
    state, loaded, read = index.state, index.loaded, index.last_read
    change = state.change_store if isinstance(state, Complete) else None
    return {
        "index_state": _NAMES[type(state)],
        "table_uuid": loaded.table_uuid if loaded is not None else None,
        "layout": loaded.layout if loaded is not None else None,
        "snapshot_id": read.snapshot_id if read is not None else None,
        "sequence_number": state.sequence_number if isinstance(state, Complete) else None,
        "change_snapshot_id": change.snapshot_id if change is not None else None,
        "change_sequence_number": change.sequence_number if change is not None else None,
        "metadata_location": state.metadata_location if isinstance(state, (Complete, Empty, Refused)) else None,
        "read_id": state.read_id if isinstance(state, (Complete, Empty)) else None,
        "read_at": read.at if read is not None else None,
        "read_landed": state.landed if isinstance(state, (Complete, Empty)) else 0,
        "problem": index.refusal or index.problem,
        "last_old_spec_delete_at": index.last_old_spec_delete_at,
        "warning": index.warning,
        "metadata_figures": index.metadata,
    }


def planning_columns(planning: TablePlanning) -> dict[str, object]:
    """All columns of a table's planning."""
    return {
        "last_planned_at": planning.last_planned_at,
        "plan_reason": planning.reason,
        "plan_problem": planning.problem,
        "distrusted_read_id": planning.distrusted_read_id,
        "queue_full_since": planning.queue_full_since,
    }


def known_table(row: StoredRow) -> KnownTable:
    """The five values that a row holds."""
    state = _state(row)
    whole = isinstance(state, (Complete, Empty))
    earlier = None if whole or row.read_at is None else WholeRead(row.snapshot_id, row.read_at)
    return KnownTable(
        TableIndex(identifier_of(row.identifier), state, earlier, row.last_old_spec_delete_at, row.warning, row.metadata_figures),
        TablePlanning(row.last_planned_at, row.plan_reason, row.plan_problem, row.distrusted_read_id, row.queue_full_since),
        TableCommits(row.landed, row.last_committed_at, row.commit_problem, row.commit_failures, row.commit_retry_at),
        TableSwitch(row.paused),
        row.index_version,
        row.policies,
    )


def _state(row: StoredRow) -> IndexState:
    loaded = LoadedTable(row.table_uuid, row.layout) if row.layout is not None else None
    name = row.index_state
    if name is IndexStateName.REFUSED:
        return Refused(row.problem, loaded, row.metadata_location)
    if name is IndexStateName.FAILED:
        return Failed(row.problem, loaded)
    if loaded is None:
        return Unread()
    if name is IndexStateName.READING:
        return Reading(loaded, row.problem)
    if name is IndexStateName.EMPTY:
        return Empty(loaded, row.metadata_location, row.read_id, row.read_at, row.read_landed, row.problem)
    change = None if row.change_snapshot_id is None else ChangeHead(row.change_snapshot_id, row.change_sequence_number)
    return Complete(
        loaded, row.snapshot_id, row.sequence_number, row.metadata_location, row.read_id, row.read_at, row.read_landed, row.problem, change
    )
