"""The tables of the state database, as the newest migration leaves them (a test compares the two).

The column `identifier` holds the text of a `TableIdentifier`. A field has its own column when queries select by it or when it
changes alone; the other fields are the JSON of the frozen dataclass. Every table's name starts with `compaction_`, because
Dagster may use the same database.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)
from sqlalchemy.schema import SchemaItem

from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.capacity.driver_gc import DriverGc
from compaction_pipeline.core.capacity.ledger import Used
from compaction_pipeline.core.capacity.scaling.action import Outcome
from compaction_pipeline.core.capacity.scaling.observation import Observation
from compaction_pipeline.core.capacity.scaling.record import Scale, ScalingRecord
from compaction_pipeline.core.catalogs.site_files import SiteFileKind
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.dependencies.answers import Answer
from compaction_pipeline.core.dependencies.center.inbox import Fact
from compaction_pipeline.core.dependencies.center.instances import InstanceState
from compaction_pipeline.core.dependencies.center.strength import Strength
from compaction_pipeline.core.dependencies.ports import ReadTo, Remembered, ToldAs
from compaction_pipeline.core.dependencies.standing import Standing
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason
from compaction_pipeline.core.queue.group import QueueOrder
from compaction_pipeline.core.queue.optimizer import OptimizerState
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.queue.watchers import WatcherKind
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.figures import MetadataFigures, NodeMetrics
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.policies import TablePolicies
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.core.tables.team_name import UNASSIGNED
from compaction_pipeline.core.upkeep.commit_record import UpkeepCommit
from compaction_pipeline.core.upkeep.consumers import Consumer
from compaction_pipeline.core.upkeep.orphan_looks import OrphanDeletion, OrphanLook
from compaction_pipeline.core.upkeep.record import UpkeepRecord, UpkeepStatus
from compaction_pipeline.core.upkeep.sightings import Sightings
from compaction_pipeline.core.upkeep.works import UpkeepWork
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.kinds import CompactionType
from compaction_pipeline.core.work.result import MergeResult
from compaction_pipeline.storage.columns import Json, Member, Moment, Said
from compaction_pipeline.storage.table_rows import IndexStateName

metadata = MetaData()

Serial = BigInteger().with_variant(Integer(), "sqlite")
"""A number that the database gives. SQLite counts only in columns that it calls INTEGER."""


def _table(name: str, *items: SchemaItem, with_rowid: bool = True) -> Table:
    return Table(name, metadata, *items, sqlite_with_rowid=with_rowid)


# How many parsed values stay in memory. Every tick reads these columns of all tables and nodes, and most have not changed.
_TABLES, _NODES = 4_096, 32_768

catalog = _table(
    "compaction_catalog",
    Column("name", String, primary_key=True),
    Column("properties", Json(Mapping[str, str]), nullable=False),
    Column("observe", Boolean, nullable=False),
    # The source of each key that a person does not hold.
    Column("held", Json(Mapping[str, str]), nullable=False, server_default="{}"),
    # Those properties that are secrets, encrypted (see `sealing`). NULL when there is none.
    Column("sealed", Text),
)

# A table has one row for all four values, because ticks read all values of all tables. Each block of columns below is one value and
# has one writer.
table_state = _table(
    "compaction_table",
    Column("identifier", String, primary_key=True),
    Column("catalog", String, nullable=False),
    # TableIndex. `snapshot_id` and `read_at` describe the last complete read, even if the table is no longer
    # COMPLETE or EMPTY.
    Column("index_state", Member(IndexStateName), nullable=False),
    # It changes with every change of the index: by it, a writer notices that another one has changed the index.
    Column("index_version", String, nullable=False, server_default=""),
    Column("table_uuid", String),
    Column("layout", Json(TableLayout, remembered=_TABLES)),
    Column("snapshot_id", BigInteger),
    Column("sequence_number", BigInteger),
    # The head of the change store of a keyed table at that read.
    Column("change_snapshot_id", BigInteger),
    Column("change_sequence_number", BigInteger),
    Column("metadata_location", Text),
    Column("read_id", String),
    Column("read_at", Moment),
    # How many of our commits the read knew of.
    Column("read_landed", Integer, nullable=False, server_default="0"),
    Column("problem", Said),
    Column("last_old_spec_delete_at", Moment),
    Column("warning", Said),
    Column("metadata_figures", Json(MetadataFigures, remembered=_TABLES)),
    # TablePlanning.
    Column("last_planned_at", Moment),
    Column("plan_reason", Json(PlanReason, remembered=_TABLES)),
    Column("plan_problem", Said),
    Column("distrusted_read_id", String),
    Column("queue_full_since", Moment),
    # TableCommits.
    Column("landed", Integer, nullable=False, server_default="0"),
    Column("last_committed_at", Moment),
    Column("commit_problem", Said),
    Column("commit_failures", Integer, nullable=False, server_default="0"),
    Column("commit_retry_at", Moment),
    # TableSwitch.
    Column("paused", Boolean, nullable=False, server_default=false()),
    # TablePolicies.
    Column("policies", Json(TablePolicies, remembered=_TABLES)),
    # In how many rounds in a row the catalog did not list the table, and since when. 0 for a table that is listed.
    Column("unseen_rounds", Integer, nullable=False, server_default="0"),
    Column("unseen_since", Moment),
    # It changes with every change of the table's nodes, whoever makes it: by it, readers notice that they must read the nodes again.
    Column("nodes_version", String, nullable=False, server_default=""),
    # A first look at a table asks whether it is known under another name.
    Index("compaction_table_uuid", "table_uuid"),
)

# Switches of the whole program. A switch that has no row is off.
switch = _table("compaction_switch", Column("name", String(32), primary_key=True))

# Tables that were paused when they were forgotten. A table that is found again under its name is paused again.
forgotten_pause = _table("compaction_forgotten_pause", Column("identifier", String, primary_key=True))

# What the last listing of each catalog did not see, as sentences. The namespace "" is the catalog as a whole.
unseen = _table(
    "compaction_unseen",
    Column("catalog", String, primary_key=True),
    Column("namespace", Text, primary_key=True),
    Column("sentence", Text, nullable=False),
    Column("tables", Integer, nullable=False),
)

# Tables that were forgotten, each with its last name. A table that is found again is known by its uuid, whatever its name is then.
vanished = _table(
    "compaction_vanished",
    Column("table_uuid", String, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("paused", Boolean, nullable=False),
    Column("at", Moment, nullable=False),
    # A table that gets a name asks whose it was.
    Index("compaction_vanished_identifier", "identifier", "at"),
)

# The reports of a table's commits, until a look at the table has answered them.
commit_report = _table(
    "compaction_commit_report",
    Column("identifier", String, primary_key=True),
    Column("snapshot_id", BigInteger, nullable=False),
    Column("sequence_number", BigInteger, nullable=False),
    Column("since", Moment, nullable=False),
    Column("reports", Integer, nullable=False),
    Column("added", Json(Mapping[str, int]), nullable=False),
)

node = _table(
    "compaction_node",
    # The long form of the node's key. It tells nodes apart, and people never see it unless it is the node's key too.
    Column("identity", String(512), primary_key=True),
    Column("identifier", String, nullable=False),
    Column("node", Json(TableNode, remembered=_NODES), nullable=False),
    Column("metrics", Json(NodeMetrics, remembered=_NODES), nullable=False),
    Column("verdict", Json(NodeVerdict, remembered=_NODES)),
    Column("first_seen", Moment),
    Column("last_done", Text, nullable=False),
    Column("changed_snapshot_id", BigInteger),
    Column("failing", Text),
    Column("small_since", Moment),
    Column("overlap_depth", Integer),
    # Queries read the nodes of one table together.
    Index("compaction_node_identifier", "identifier"),
)

node_key = _table(
    "compaction_node_key",
    # The same text as in `compaction_node`. A row stays when its node is gone, so that the node gets its key again and no other node does.
    Column("identity", String(512), primary_key=True),
    Column("key", String(512), nullable=False),
    Index("compaction_node_key_key", "key", unique=True),
    with_rowid=False,
)

manifest = _table(
    "compaction_manifest",
    Column("manifest_id", Integer, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("path", Text, nullable=False),
    # Files are dropped by table and manifest. The index is unique, because a manifest that is indexed twice would double its files.
    Index("compaction_manifest_path", "identifier", "path", unique=True),
)

partition = _table(
    "compaction_partition",
    Column("partition_id", Integer, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("value", Json(Partition), nullable=False),
    Column("spec_id", Integer, nullable=False, server_default="0"),
    # True when the node must be measured again even if its files have not changed. Storing the new figures resets it.
    Column("touched", Boolean, nullable=False, server_default=true()),
    # Sums (mod 2⁶³) of `entry_hash` over the node's files: of the files that it has now, and of those that were last measured.
    # While the two differ, the node must be measured. This also holds after a process is killed between the two writes. When a
    # file moves unchanged from one manifest to another, the sum stays the same.
    Column("files_sum", BigInteger, nullable=False, server_default="0"),
    Column("measured_sum", BigInteger, nullable=False, server_default="0"),
    # The partition's values are stored once for each node, not with each file. Each insert looks the node up by its digest,
    # because the values may be longer than PostgreSQL allows in an index.
    Index("compaction_partition_digest", "identifier", "digest", unique=True),
)

_REFERENCING = text("referenced_hash IS NOT NULL")
_EQUALITY = text("content = 'EQUALITY_DELETES'")

live_file = _table(
    "compaction_file",
    # The files of a manifest are added, removed and read together, so the primary key keeps them together. The table has no
    # row id on SQLite, because a second index would halve the speed of inserts.
    Column("manifest_id", ForeignKey("compaction_manifest.manifest_id"), primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("partition_id", Integer, nullable=False),
    Column("path", Text, nullable=False),
    Column("content", Member(FileContent), nullable=False),
    Column("spec_id", Integer, nullable=False),
    Column("file_size_bytes", BigInteger, nullable=False),
    Column("record_count", BigInteger, nullable=False),
    Column("data_sequence_number", BigInteger, nullable=False),
    Column("added_snapshot_id", BigInteger, nullable=False),
    Column("equality_ids", Text),
    Column("referenced_data_file", Text),
    Column("path_lower", Text),
    Column("path_upper", Text),
    Column("sort_order_id", Integer),
    # CRC-32 of the path and of the referenced path. Whole paths in indexes would double the size of the database. Different paths
    # may have the same hash, so queries compare the paths too.
    Column("path_hash", BigInteger, nullable=False, server_default="0"),
    Column("referenced_hash", BigInteger),
    # A hash of the whole entry except its manifest. It is NULL for files that were indexed before this column existed.
    Column("entry_hash", BigInteger),
    # The bounds of the sort columns of a data file. NULL for a table without a sort order, and for files that were indexed before.
    Column("sort_bounds", Text),
    # A node is measured and planned by itself, so a query reads only its files, not all files of the table. This index and the
    # next two hold both the node and a hash, so files that matter to several nodes are found in the indexes alone.
    Index("compaction_file_partition", "partition_id", "path_hash"),
    # Finds a path that is live in another node too.
    Index("compaction_file_path", "path_hash", "partition_id"),
    # Finds position deletes of other nodes that name a file of this node.
    Index("compaction_file_reference", "referenced_hash", "partition_id", sqlite_where=_REFERENCING, postgresql_where=_REFERENCING),
    # Finds global equality deletes. While there is one, no node can be looked at alone.
    Index("compaction_file_equality", "partition_id", sqlite_where=_EQUALITY, postgresql_where=_EQUALITY),
    with_rowid=False,
)

_RETRIED = text("retry_at IS NOT NULL")
_MERGED = text("prepared_at IS NOT NULL")
_REPLACED = text("end_reason = 'REPLACED'")
_HAS_TURN = text("(status = 'PENDING' AND paused = false) IS TRUE")
"""Written like this it fits no column of another index, so a database that looks for it takes an index that is made for it."""
PROMISED = text("(predicted_gb_hours IS NOT NULL AND (status = 'EXECUTING' OR (status = 'PENDING' AND paused = false))) IS TRUE")
"""The tasks to which GB-hours of their team are promised: they run, or may begin."""

task = _table(
    "compaction_task",
    Column("task_id", String, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("queue", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("exclusive_node", Json(TableNode)),
    Column("planned", Json(CompactionTask), nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("status", Member(TaskStatus), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("attempt_id", String),
    Column("owner", String),
    Column("lease_expires_at", Moment),
    Column("started_at", Moment),
    Column("ended_at", Moment),
    Column("end_reason", Member(EndReason)),
    Column("reason", Said),
    Column("result", Json(MergeResult)),
    Column("record_id", String),
    # The bytes of the task's data files. The planned work and the work that waits for a commit are also limited in bytes.
    Column("input_bytes", BigInteger, nullable=False, server_default="0"),
    # A copy of `paused` of the task's table. Polls read it, so that waiting tasks of paused tables do not slow them down.
    Column("paused", Boolean, nullable=False, server_default=false()),
    # How many attempts used up a retry, and how many were lost in a row.
    Column("failures", Integer, nullable=False, server_default="0"),
    Column("losses", Integer, nullable=False, server_default="0"),
    # It is NULL only in rows that ended before version 0013.
    Column("waiting_since", Moment),
    Column("failed_at", Moment),
    # It is set while a FAILED task waits to be tried again, and only then. Such a task is open.
    Column("retry_at", Moment),
    Column("prepared_at", Moment),
    Column("committed_at", Moment),
    # What `core/queue/order.py` sorts by, beside `waiting_since` and the id: the rank, and the negative number of small files.
    Column("rank", BigInteger, nullable=False, server_default="0"),
    Column("many_files", Integer, nullable=False, server_default="0"),
    # The team that the task's table belongs to. Waiting tasks follow their table to another team, running ones do not.
    Column("team", String(64), nullable=False, server_default=UNASSIGNED),
    # A poll takes the first Pending task, of any queue or of one. The indexes hold the whole order, so a poll reads one row, and neither
    # ended tasks nor those of other queues slow it down.
    Index("compaction_task_poll", "status", "paused", "rank", "many_files", "waiting_since", "task_id"),
    Index("compaction_task_poll_queue", "queue", "status", "paused", "rank", "many_files", "waiting_since", "task_id"),
    # The same in queues whose order is FIFO, and for one table after the other in queues whose order is QUOTA.
    Index("compaction_task_poll_fifo", "queue", "status", "paused", "waiting_since", "task_id"),
    Index("compaction_task_poll_table", "queue", "status", "paused", "identifier", "rank", "many_files", "waiting_since", "task_id"),
    # While a team has a limit, a poll takes the heads of the teams that have room. A task that was taken leaves these indexes.
    Index(
        "compaction_task_poll_team",
        *("queue", "team", "rank", "many_files", "waiting_since", "task_id"),
        sqlite_where=_HAS_TURN,
        postgresql_where=_HAS_TURN,
    ),
    Index(
        "compaction_task_poll_team_fifo",
        *("queue", "team", "waiting_since", "task_id"),
        sqlite_where=_HAS_TURN,
        postgresql_where=_HAS_TURN,
    ),
    # The plans of a team with a limit of GB-hours ask how many of them its tasks will take.
    Column("predicted_gb_hours", Float),
    Index("compaction_task_promised", "team", "predicted_gb_hours", sqlite_where=PROMISED, postgresql_where=PROMISED),
    # Plans and commits ask for the open tasks of one table.
    Index("compaction_task_identifier", "identifier", "status"),
    # The settling of a commit finds its tasks by record.
    Index("compaction_task_record", "record_id"),
    # Every few seconds the keeper asks which FAILED tasks are due. Tasks that are FAILED for good are not in this index.
    Index("compaction_task_retry", "retry_at", "task_id", sqlite_where=_RETRIED, postgresql_where=_RETRIED),
    # Every tick asks how much was merged in the last minutes.
    Index("compaction_task_merged", "prepared_at", sqlite_where=_MERGED, postgresql_where=_MERGED),
    # Every look at the status counts them. A busy table has thousands a day.
    Index("compaction_task_replaced", "end_reason", sqlite_where=_REPLACED, postgresql_where=_REPLACED),
)

task_input = _table(
    "compaction_task_input",
    # The primary key keeps the paths of a task together, because `in_use` reads them by task. Nothing searches for a single path.
    Column("task_id", ForeignKey("compaction_task.task_id", ondelete="CASCADE"), primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    with_rowid=False,
)

attempt = _table(
    "compaction_attempt",
    Column("task_id", ForeignKey("compaction_task.task_id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("attempt_id", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("end_reason", Member(EndReason)),
    Column("reason", Said),
    Column("claimed", Member(EndReason)),
    Column("application", String, nullable=False, server_default=""),
    # The memory of its slot, when it is no optimizer's.
    Column("reserve_bytes", BigInteger),
    # What its worker told while it ran. What it is charged for stands in the ledger.
    Column("used_so_far", Json(Used)),
    # An attempt id is never used twice, because a file name contains it to tell which attempt wrote the file.
    Index("compaction_attempt_id", "attempt_id", unique=True),
    # The occupation of tables is that of the last hour.
    Index("compaction_attempt_ended", "ended_at"),
)

record = _table(
    "compaction_record",
    Column("record_id", String, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("status", Member(RecordStatus), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("mirrored", Boolean, nullable=False),
    Column("value", Json(CompactionRecord), nullable=False),
    # The uuid of the table, if it was known. A table that is made anew under the name has no history of the old one.
    Column("table_uuid", String),
    # By how many files a landed commit has made its table smaller.
    Column("merged_away", Integer, nullable=False, server_default="0"),
    # Every tick adds up the files that were merged away. The index holds all that this needs, so no record is read.
    Index("compaction_record_merged_away", "identifier", "merged_away"),
    # Pages show the history newest first, of one table or of all tables.
    Index("compaction_record_identifier", "identifier", "created_at"),
    Index("compaction_record_created_at", "created_at"),
    # Each scrape of `/metrics` counts the commits that ended since the one before.
    Index("compaction_record_ended_at", "ended_at"),
    # Every tick asks for the few records that are unsettled or not mirrored.
    Index("compaction_record_status", "status", "mirrored"),
)

history = _table(
    "compaction_history",
    # One row for each point of the history of all tables' files, a few hundred in all (see `core/insight/files_over_time.py`).
    Column("at", Moment, primary_key=True),
    Column("files", BigInteger, nullable=False),
    Column("merged_away", BigInteger, nullable=False),
)

comparison = _table(
    "compaction_comparison",
    # What came out when a table was last compared with its newest record (see `core/insight/comparison.py`).
    Column("identifier", String, primary_key=True),
    Column("record_id", String, nullable=False),
    Column("metadata_location", Text, nullable=False),
    Column("contradiction", Text),
)

lease = _table(
    "compaction_lease",
    Column("name", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("expires_at", Moment, nullable=False),
)

site_file = _table(
    "compaction_site_file",
    # The id: the kind and a part of the hash of the content.
    Column("name", String(64), primary_key=True),
    Column("kind", Member(SiteFileKind), nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("added_at", Moment, nullable=False),
    # The content in base64, encrypted (see `sealing`).
    Column("sealed", Text, nullable=False),
)

team = _table(
    "compaction_team",
    Column("name", String(64), primary_key=True),
    Column("owners", Json(tuple[str, ...]), nullable=False),
    # NULL means without limit.
    Column("slots", Integer),
    Column("memory_bytes", BigInteger),
    Column("gb_hours", Float),
    # Since when a keeper has seen that nothing more of the team may begin.
    Column("held_since", Moment),
)

# What a team asked another one for, also loans that have ended.
team_loan = _table(
    "compaction_team_loan",
    Column("loan_id", String(32), primary_key=True),
    Column("lender", String(64), nullable=False),
    Column("borrower", String(64), nullable=False),
    Column("until", Moment, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("asked_at", Moment, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("gb_hours", Float, nullable=False),
    Column("consent", Text, nullable=False),
    Column("approved_by", Text, nullable=False),
    Column("began_at", Moment),
    Column("ended_at", Moment),
    Column("excuses", Json(Mapping[str, str]), nullable=False, server_default="{}"),
)

team_whitelist = _table(
    "compaction_team_whitelist",
    Column("team", String(64), primary_key=True),
    Column("at", Moment, primary_key=True),
    Column("until", Moment, nullable=False),
    Column("reason", Text, nullable=False),
    Column("allowed_by", Text, nullable=False),
    Column("refused_loan", String(32), nullable=False, server_default=""),
)

# Teams that administrators gave to tables and to catalogs, by name.
team_mapping = _table(
    "compaction_team_mapping",
    Column("target", String, primary_key=True),
    Column("team", String(64), nullable=False),
)

# Every change of the four tables above: who, when, and what was and is.
team_change = _table(
    "compaction_team_change",
    Column("change_id", Serial, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("who", Text, nullable=False),
    Column("team", String(64), nullable=False),
    Column("what", Text, nullable=False),
    Column("before", Text),
    Column("after", Text),
    Index("compaction_team_change_team", "team", "change_id"),
)

group = _table(
    "compaction_group",
    Column("name", String(64), primary_key=True),
    Column("container", String, nullable=False),
    Column("properties", Json(Mapping[str, str]), nullable=False),
    Column("capacity", Integer, nullable=False),
    Column("task_order", Member(QueueOrder), nullable=False),
    Column("sealed", Text),
    Column("held", Text, nullable=False, server_default=""),
)

optimizer = _table(
    "compaction_optimizer",
    Column("optimizer_id", String, primary_key=True),
    Column("group", String, nullable=False),
    Column("host", String, nullable=False),
    Column("process", String, nullable=False),
    Column("version", String, nullable=False),
    Column("parallelism", Integer, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("touched_at", Moment, nullable=False),
    Column("state", Member(OptimizerState), nullable=False),
    Column("memory_bytes", BigInteger, nullable=False),
    Column("resource_id", String, nullable=False),
    Column("container", String, nullable=False, server_default="external"),
    Column("settings", String(16), nullable=False, server_default=""),
    Column("why", Said, nullable=False),
    Column("poll_id", String, nullable=False),
    Column("polled", Json(tuple[str, ...]), nullable=False),
    Column("log_level", String, nullable=False, server_default=""),
    Column("stack_request", String, nullable=False, server_default=""),
    Column("merge_version", Integer, nullable=False, server_default="1"),
    Column("failed", Boolean, nullable=False, server_default=false()),
    Column("application", String, nullable=False, server_default=""),
    # What the ledger needs. They are NULL while an optimizer has not told them; one of an earlier release never does.
    Column("cores", Float),
    Column("first_polled_at", Moment),
    Column("held_seconds", Float),
    Column("idle_seconds", Float),
    Column("driver_gc", Json(DriverGc)),
    # The keeper asks every few seconds for the live ones that are silent.
    Index("compaction_optimizer_state", "state", "touched_at"),
)

cost = _table(
    "compaction_cost",
    # Attempts and their tasks are removed long before these rows, and a table that is forgotten keeps what it has cost. So there is no
    # foreign key, and what a row is summed by stands in it.
    Column("attempt_id", String, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("team", String, nullable=False),
    Column("queue", String, nullable=False),
    Column("type", Member(CompactionType), nullable=False),
    Column("owner", String, nullable=False),
    Column("end_reason", Member(EndReason), nullable=False),
    Column("slot_seconds", Float, nullable=False),
    Column("cpu_seconds", Float),
    Column("overhead_cpu_seconds", Float),
    Column("peak_memory_bytes", BigInteger),
    Column("bytes_read", BigInteger),
    Column("bytes_written", BigInteger),
    Column("gb_hours", Float),
    Column("is_cut", Boolean, nullable=False),
    # It ended without a report, which may still come and tell what the attempt used.
    Column("is_provisional", Boolean, nullable=False),
    # What the task's plan expected its attempt to write, without a look at past attempts. NULL in rows of earlier releases.
    Column("expected_bytes", BigInteger),
    Index("compaction_cost_day", "day"),
    # Predictions look at the last attempts on a table.
    Index("compaction_cost_table", "identifier", "day"),
)

cost_of_day = _table(
    "compaction_cost_of_day",
    Column("day", Date, primary_key=True),
    Column("team", String, primary_key=True),
    Column("attempts", BigInteger, nullable=False),
    Column("slot_seconds", Float, nullable=False),
    Column("merged_slot_seconds", Float, nullable=False),
    Column("cpu_seconds", Float, nullable=False),
    Column("gb_hours", Float, nullable=False),
    Column("bytes_read", BigInteger, nullable=False),
    Column("bytes_written", BigInteger, nullable=False),
)

slot_time = _table(
    "compaction_slot_time",
    Column("optimizer_id", String, primary_key=True),
    Column("day", Date, primary_key=True),
    Column("queue", String, nullable=False),
    # The memory that one slot has, for GB-hours; NULL when unknown.
    Column("reserve_bytes", BigInteger),
    Column("starting", Float, nullable=False),
    Column("held", Float, nullable=False),
    Column("idle", Float, nullable=False),
    Column("ending", Float, nullable=False),
    Index("compaction_slot_time_day", "day"),
)

# How long the keeper looked at an optimizer in an hour, and how much of that its use was low. Rows are kept for some days.
optimizer_use = _table(
    "compaction_optimizer_use",
    Column("optimizer_id", String, primary_key=True),
    Column("hour", Moment, primary_key=True),
    Column("queue", String, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("low_seconds", Float, nullable=False),
    Column("looked_at", Moment, nullable=False),
    Index("compaction_optimizer_use_hour", "hour"),
)

# What planning, commits and ticks have used on a day, by table. Ticks have neither table nor team.
own_work = _table(
    "compaction_own_work",
    Column("day", Date, primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("identifier", String, primary_key=True),
    Column("team", String, primary_key=True),
    Column("times", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("cpu_seconds", Float, nullable=False),
)

# What each group with a policy of scaling is to have. A change is stored only while the revision is the one that its writer read.
scale = _table(
    "compaction_scale",
    Column("group", String, primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("value", Json(Scale), nullable=False),
)

scaling_record = _table(
    "compaction_scaling_record",
    Column("record_id", String, primary_key=True),
    Column("group", String, nullable=False),
    Column("at", Moment, nullable=False),
    Column("outcome", Member(Outcome)),
    Column("value", Json(ScalingRecord), nullable=False),
    Index("compaction_scaling_record_at", "group", "at"),
    # A group has one open action.
    Index(
        "compaction_scaling_record_open",
        "group",
        unique=True,
        sqlite_where=text("outcome IS NULL"),
        postgresql_where=text("outcome IS NULL"),
    ),
)

# What was seen of each such group in each minute.
observation = _table(
    "compaction_observation",
    Column("group", String, primary_key=True),
    Column("at", Moment, primary_key=True),
    Column("value", Json(Observation), nullable=False),
)

watcher = _table(
    "compaction_watcher",
    Column("name", String, primary_key=True),
    Column("kind", Member(WatcherKind), nullable=False),
    Column("since", Moment, nullable=False),
    Column("renewed_at", Moment, nullable=False),
)

token = _table(
    "compaction_token",
    Column("token_id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("role", Member(Role), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("salt", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("revoked_at", Moment),
    Column("parent_id", String),
    Column("optimizer_id", String),
    Column("blocked_at", Moment),
    Column("allowed_at", Moment),
    # The receivers of jobs for which it may claim. NULL of tokens that were made when any writer might claim for all.
    Column("receivers", Json(tuple[str, ...])),
    # Revoking a token revokes those of the optimizers that registered with it.
    Index("compaction_token_parent", "parent_id"),
)


def _upkeep_records(name: str, record: type) -> Table:
    return _table(
        name,
        Column("record_id", String, primary_key=True),
        Column("identifier", String, nullable=False),
        Column("status", Member(UpkeepStatus), nullable=False),
        Column("created_at", Moment, nullable=False),
        Column("ended_at", Moment),
        Column("value", Json(record), nullable=False),
        Index(f"{name}_identifier", "identifier", "created_at"),
        Index(f"{name}_status", "status", "ended_at"),
    )


upkeep_record = _upkeep_records("compaction_upkeep_record", UpkeepRecord)
# Works of upkeep that commit.
upkeep_commit = _upkeep_records("compaction_upkeep_commit", UpkeepCommit)

# When each work of upkeep looked at each table the last time.
upkeep_turn = _table(
    "compaction_upkeep_turn",
    Column("identifier", String, primary_key=True),
    Column("work", Member(UpkeepWork), primary_key=True),
    Column("at", Moment, nullable=False),
    Column("metadata_location", Text),
    Column("next_look", Moment),
)

# What was seen of each store that upkeep looked at. The change store of a keyed table has a row of its own.
sightings = _table(
    "compaction_sightings",
    Column("identifier", String, primary_key=True),
    Column("value", Json(Sightings), nullable=False),
)

# The stored looks for orphan files. A look that is done is not read by each round, so the time and this are columns.
orphan_look = _table(
    "compaction_orphan_look",
    Column("identifier", String, primary_key=True),
    Column("listed_at", Moment, primary_key=True),
    Column("is_done", Boolean, nullable=False),
    Column("value", Json(OrphanLook), nullable=False),
)

orphan_deletion = _table(
    "compaction_orphan_deletion",
    Column("record_id", String, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("value", Json(OrphanDeletion), nullable=False),
    Index("compaction_orphan_deletion_identifier", "identifier", "created_at"),
)

# Where tables were ever seen. A row stays when its table is dropped, moved or renamed: nobody knows what became of its files.
table_place = _table(
    "compaction_table_place",
    Column("identifier", String, primary_key=True),
    Column("table_uuid", String, primary_key=True),
    Column("location", Text, primary_key=True),
    Column("metadata_location", Text),
    Column("read_at", Moment),
    Column("roots", Json(tuple[str, ...]), nullable=False),
)

# Readers that are registered, so that what they have not read stays.
consumer = _table(
    "compaction_consumer",
    Column("identifier", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("until", Moment, nullable=False),
    Column("value", Json(Consumer), nullable=False),
)

# What is known of the readiness of tables belongs to them by their uuids, so it stays when a table is renamed.
ready_head = _table(
    "compaction_ready_head",
    Column("table_uuid", String, primary_key=True),
    Column("store", Integer, primary_key=True, autoincrement=False),
    Column("snapshot_id", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Moment, nullable=False),
    Column("value", Json(Remembered), nullable=False),
)

ready_standing = _table(
    "compaction_ready_standing",
    Column("table_uuid", String, primary_key=True),
    Column("writer", String, primary_key=True),
    Column("asked_at", Moment, nullable=False),
    Column("value", Json(Standing), nullable=False),
    Index("compaction_ready_standing_asked", "asked_at"),
)

ready_reading = _table(
    "compaction_ready_reading",
    Column("table_uuid", String, primary_key=True),
    Column("at", Moment, nullable=False),
    Column("value", Json(ReadTo), nullable=False),
)

ready_partition = _table(
    "compaction_ready_partition",
    Column("table_uuid", String, primary_key=True),
    # A hash of the spec and the values.
    Column("place", String, primary_key=True),
    Column("spec_id", Integer, nullable=False),
    Column("partition", Json(Partition), nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("added_at", Moment),
    Column("added_by", BigInteger),
)

ready_answer = _table(
    "compaction_ready_answer",
    Column("table_uuid", String, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("asked_at", Moment, nullable=False),
    # Until when the receiver of callbacks is told of each change, the id of the one that it was told last, and as what.
    Column("awaited_until", Moment),
    Column("told", Text),
    Column("told_as", Member(ToldAs)),
    # Something was reported of the table, and nobody has looked at it since.
    Column("reported", Boolean, nullable=False, server_default=false()),
    Column("value", Json(Answer), nullable=False),
    Index("compaction_ready_answer_awaited", "awaited_until"),
    # A report of a commit names its table.
    Index("compaction_ready_answer_identifier", "identifier"),
)

ready_report = _table(
    "compaction_ready_report",
    Column("table_uuid", String, primary_key=True),
    Column("what", Text, primary_key=True),
    Column("at", Moment, nullable=False),
)

# The dependency center. A project without jobs was removed; its row stays, so that `version` counts every change.
center_project = _table(
    "compaction_center_project",
    Column("name", String, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("file", Json(Mapping[str, Any]), nullable=False),
)

center_job = _table(
    "compaction_center_job",
    Column("name", String, primary_key=True),
    Column("project", String, nullable=False),
    # The business time of which the next instance will be, and when its trigger is; NULL when none will be made.
    Column("biz", String, nullable=False),
    Column("at", Moment),
    Index("compaction_center_job_at", "at"),
)

center_instance = _table(
    "compaction_center_instance",
    Column("id", Serial, primary_key=True),
    Column("job", String, nullable=False),
    Column("biz", String, nullable=False),
    Column("origin", String, nullable=False),
    Column("part", String, nullable=False),
    Column("receiver", String),
    Column("generation", Integer, nullable=False),
    Column("state", Member(InstanceState), nullable=False),
    Column("missing", Integer, nullable=False),
    Column("made_at", Moment, nullable=False),
    Column("ready_at", Moment),
    Column("claimed_at", Moment),
    Column("delivered_at", Moment),
    Column("ended_at", Moment),
    Column("changed_at", Moment),
    # What it was started without, and why.
    Column("note", Text),
    UniqueConstraint("job", "biz", "origin", "part", name="compaction_center_instance_run"),
    Index("compaction_center_instance_state", "state", "missing", "receiver"),
)

# How far a thing has got: 1 when it is there, or a watermark in milliseconds. `spread` is false while instances must still be told, and
# `fell` is the lowest point to which it fell since they all knew.
center_subject = _table(
    "compaction_center_subject",
    Column("id", Serial, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    # What it is of: a job, a table or an asset. `reported` is true when something was reported of a table since somebody looked at it.
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("reported", Boolean, nullable=False),
    Column("reached", BigInteger, nullable=False),
    Column("fell", BigInteger),
    Column("spread", Boolean, nullable=False),
    Column("at", Moment),
    Index("compaction_center_subject_spread", "spread", "at"),
    Index("compaction_center_subject_name", "kind", "name"),
)

center_requirement = _table(
    "compaction_center_requirement",
    Column("instance_id", Serial, ForeignKey("compaction_center_instance.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("edge", Integer, primary_key=True, autoincrement=False),
    Column("subject_id", Serial, ForeignKey("compaction_center_subject.id"), primary_key=True, autoincrement=False),
    Column("bound", BigInteger, primary_key=True, autoincrement=False),
    Column("met", Boolean, nullable=False),
    # Of a weak edge: when its business time opens. NULL for those that count by themselves.
    Column("opens_at", Moment),
    Index("compaction_center_requirement_subject", "subject_id", "met", "bound"),
)

# The requirements of one instance for a weak edge, which count as one. `look_at` is when they may change without any news.
center_group = _table(
    "compaction_center_group",
    Column("instance_id", Serial, ForeignKey("compaction_center_instance.id", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    Column("edge", Integer, primary_key=True, autoincrement=False),
    Column("strength", Member(Strength), nullable=False),
    Column("until_at", Moment),
    Column("waits_for_failed", Boolean, nullable=False),
    Column("met", Boolean, nullable=False),
    Column("look_at", Moment),
    Index("compaction_center_group_look_at", "look_at"),
)

center_fact = _table(
    "compaction_center_fact",
    Column("id", Serial, primary_key=True),
    Column("value", Json(Fact), nullable=False),
    # Why it could not be applied. It is kept, and not tried again.
    Column("problem", Text),
)

# What the patrol found although a detector is told of such changes: how many events of an hour, and of which table.
center_missed = _table(
    "compaction_center_missed",
    Column("hour", Moment, primary_key=True),
    Column("detector", String, primary_key=True),
    Column("name", String, primary_key=True),
    Column("events", BigInteger, nullable=False),
)

# What the owners of jobs should look at, as the leader found it last.
center_alert = _table(
    "compaction_center_alert",
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("job", String, nullable=False),
    Column("owner", Said, nullable=False),
    Column("text", Said, nullable=False),
)

# Why nobody knows how far a table is (by its name), or one thing of it (by the key of its subject).
center_problem = _table(
    "compaction_center_problem",
    Column("key", String, primary_key=True),
    Column("problem", Said, nullable=False),
)

# The last number that a source gave to what it says of one thing.
center_number = _table(
    "compaction_center_number",
    Column("key", Text, primary_key=True),
    Column("source", String, primary_key=True),
    Column("number", BigInteger, nullable=False),
)

# What people are told of. An event is written in the transaction that makes it true, and its notices when addresses are known.
notice_event = _table(
    "compaction_notice_event",
    Column("event_id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("queue", String, nullable=False),
    Column("team", String),
    Column("at", Moment, nullable=False),
    Column("lines", Json(tuple[str, ...]), nullable=False),
    # It has its notices.
    Column("is_spread", Boolean, nullable=False),
    Index("compaction_notice_event_at", "at"),
)

notice = _table(
    "compaction_notice",
    Column("event_id", String, ForeignKey("compaction_notice_event.event_id", ondelete="CASCADE"), primary_key=True),
    # A digest, because addresses are secrets.
    Column("address", String, primary_key=True),
    Column("recipient", String, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("first_at", Moment, nullable=False),
    # When it is tried next. NULL when it was sent or given up.
    Column("due_at", Moment),
    Column("sent_at", Moment),
    # Why the last try failed; "" when none did.
    Column("why", String, nullable=False),
    Index("compaction_notice_due", "due_at"),
)
