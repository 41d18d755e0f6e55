"""What use cases need to plan: the state of tables and nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from compaction_pipeline.core.fragmentation.verdict import NodeState, PlanReason
from compaction_pipeline.core.queue.task import CompactionType
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.table import TableIdentifier, TableLayout


@dataclass(frozen=True, slots=True)
class TableState:
    """What the state database knows of a table.

    `known_snapshot_id` is the snapshot whose files are indexed; `complete` is False while a first look is under way (then
    nothing is planned). `head_*` are of the newest head seen. `problem` is what is wrong with it now (refusal, bad property,
    catalog error), `warning` what a person should know (foreign REPLACE snapshots). `commit_problem` is why its last
    `commit_failures` commits failed, None after one that did not; no tick commits it before `commit_retry_at`.
    """

    table: TableIdentifier
    table_uuid: str | None = None
    head_snapshot_id: int | None = None
    known_snapshot_id: int | None = None
    known_sequence_number: int = 0
    # Newest commit that we saw of a delete file whose spec is not the current one; see "Specs" in the planning rules.
    last_old_spec_delete_at: datetime | None = None
    complete: bool = False
    layout: TableLayout | None = None
    paused: bool = False
    dropped: bool = False
    refusal: str | None = None
    problem: str | None = None
    warning: str | None = None
    last_planned_at: datetime | None = None
    last_committed_at: datetime | None = None
    plan_reason: PlanReason | None = None
    refreshed_at: datetime | None = None
    # Where the metadata lay of which `head_snapshot_id`, `layout`, `refusal` and `problem` tell.
    metadata_location: str | None = None
    commit_problem: str | None = None
    commit_failures: int = 0
    commit_retry_at: datetime | None = None


class TableStore(Protocol):
    """Tables and their nodes."""

    def states(self, catalog: str | None = None) -> Sequence[TableState]:
        """All known tables that were not dropped, sorted by identifier."""

    def seen(self) -> Mapping[TableIdentifier, str | None]:
        """All known tables that were not dropped, with the place of the metadata that their state tells of whole.

        None for one that must be read: never, not wholly, or with an error.
        """

    def state(self, table: TableIdentifier) -> TableState:
        """NotFoundError when unknown."""

    def save(self, state: TableState) -> None:
        """Insert or replace, `paused` excepted (only `pause` changes it)."""

    def update(self, table: TableIdentifier, changes: Mapping[str, object]) -> None:
        """Set only these fields of a TableState, in one statement: refresh, plan and commit each own some of them.

        NotFoundError when the table is unknown.
        """

    def pause(self, table: TableIdentifier | None, paused: bool) -> int:
        """Pause or resume one table or all; answers how many rows changed. NotFoundError when unknown."""

    def forget(self, table: TableIdentifier) -> None:
        """Remove a dropped table with files, nodes and tasks; its records stay."""

    def nodes(self, table: TableIdentifier | None = None, only: Collection[TableNode] | None = None) -> Sequence[NodeState]:
        """All nodes of a table, or of all tables, sorted by key; of a table only these where given."""

    def remove_nodes(self, table: TableIdentifier, nodes: Collection[TableNode]) -> None:
        """Forget nodes that hold no file any more."""

    def node(self, key: str) -> NodeState:
        """By node key, cut keys included; NotFoundError when unknown."""

    def save_nodes(self, table: TableIdentifier, nodes: Sequence[NodeState]) -> None:
        """Insert or replace; `last_done` and `first_seen` of a stored node are kept where the new value lacks them."""

    def mark_done(self, table: TableIdentifier, done: Sequence[tuple[TableNode, CompactionType]], at: datetime) -> None: ...
