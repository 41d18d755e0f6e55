"""Tables of the state database, as the newest migration leaves them (a test compares the two).

A table is named by the text of its `TableIdentifier`. Columns exist for what is asked for or changed by itself; the rest is
the JSON of the frozen dataclass. Every name starts with `compaction_`, as the database may be shared (with Dagster's).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, Integer, MetaData, String, Table, Text, text, true

from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict, PlanReason
from compaction_pipeline.core.queue.task import CompactionTask, EndReason, MergeResult, TaskStatus
from compaction_pipeline.core.tables.data_file import FileContent
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import Partition, TableNode
from compaction_pipeline.core.tables.table import TableLayout
from compaction_pipeline.storage.columns import Json, Member, Moment

metadata = MetaData()

# What every tick reads of all tables, and what stands still on most: texts that were read before are not read again.
_TABLES, _NODES = 4_096, 32_768

catalog = Table(
    "compaction_catalog",
    metadata,
    Column("name", String, primary_key=True),
    Column("properties", Json(Mapping[str, str]), nullable=False),
    Column("observe", Boolean, nullable=False),
)

table_state = Table(
    "compaction_table",
    metadata,
    Column("identifier", String, primary_key=True),
    Column("catalog", String, nullable=False),
    Column("table_uuid", String),
    Column("head_snapshot_id", BigInteger),
    Column("known_snapshot_id", BigInteger),
    Column("known_sequence_number", BigInteger, nullable=False),
    Column("complete", Boolean, nullable=False),
    Column("layout", Json(TableLayout, remembered=_TABLES)),
    Column("paused", Boolean, nullable=False),
    Column("dropped", Boolean, nullable=False),
    Column("refusal", Text),
    Column("problem", Text),
    Column("warning", Text),
    Column("last_planned_at", Moment),
    Column("last_committed_at", Moment),
    Column("plan_reason", Json(PlanReason, remembered=_TABLES)),
    Column("refreshed_at", Moment),
    Column("last_old_spec_delete_at", Moment),
    Column("metadata_location", Text),
    Column("commit_problem", Text),
    Column("commit_failures", Integer, nullable=False, server_default="0"),
    Column("commit_retry_at", Moment),
)

node = Table(
    "compaction_node",
    metadata,
    Column("key", String(512), primary_key=True),
    Column("identifier", String, nullable=False),
    Column("node", Json(TableNode, remembered=_NODES), nullable=False),
    Column("metrics", Json(NodeMetrics, remembered=_NODES), nullable=False),
    Column("verdict", Json(NodeVerdict, remembered=_NODES)),
    Column("first_seen", Moment),
    Column("last_done", Text, nullable=False),
    Column("changed_snapshot_id", BigInteger),
    Column("failing", Text),
    # The nodes of one table are read and replaced together at each refresh.
    Index("compaction_node_identifier", "identifier"),
)

manifest = Table(
    "compaction_manifest",
    metadata,
    Column("manifest_id", Integer, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("path", Text, nullable=False),
    # Files are dropped by table and manifest; unique, as a manifest indexed twice would double its files.
    Index("compaction_manifest_path", "identifier", "path", unique=True),
)

partition = Table(
    "compaction_partition",
    metadata,
    Column("partition_id", Integer, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("value", Json(Partition), nullable=False),
    Column("spec_id", Integer, nullable=False, server_default="0"),
    # Set where the node's figures must be made anew whatever its files, reset when they were stored.
    Column("touched", Boolean, nullable=False, server_default=true()),
    # Sums (mod 2⁶³) of `entry_hash` over the node's files: now, and when its figures were stored. They differ while its files are
    # others than those measured; a process that is killed in between leaves the node to be measured by the next one. A file that
    # goes with one manifest and comes unchanged with another leaves the sum as it was.
    Column("files_sum", BigInteger, nullable=False, server_default="0"),
    Column("measured_sum", BigInteger, nullable=False, server_default="0"),
    # One row a node. It is kept once, not in each of its files, and looked up at each insert: by digest, as a value may be
    # longer than PostgreSQL allows in an index.
    Index("compaction_partition_digest", "identifier", "digest", unique=True),
)

_REFERENCING = text("referenced_hash IS NOT NULL")
_EQUALITY = text("content = 'EQUALITY_DELETES'")

live_file = Table(
    "compaction_file",
    metadata,
    # The key clusters the files of a manifest (SQLite keeps no other copy): they come, go and are read together, and a
    # second index would halve the speed of inserts.
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
    # CRC-32 of the path and of the referenced path: whole paths in indexes would double the database; equal ones are compared.
    Column("path_hash", BigInteger, nullable=False, server_default="0"),
    Column("referenced_hash", BigInteger),
    # Of all that the entry says (its manifest apart); NULL for files indexed before there was one.
    Column("entry_hash", BigInteger),
    # A node is measured and planned by itself: of a million files only its own are read. With the hash, and the next two with the
    # node, what crosses nodes is found in the indexes alone.
    Index("compaction_file_partition", "partition_id", "path_hash"),
    # Whether a path is live in another node too.
    Index("compaction_file_path", "path_hash", "partition_id"),
    # A position delete of another node that names a file of this one.
    Index("compaction_file_reference", "referenced_hash", "partition_id", sqlite_where=_REFERENCING, postgresql_where=_REFERENCING),
    # Whether any global delete is there: then no node stands for itself.
    Index("compaction_file_equality", "partition_id", sqlite_where=_EQUALITY, postgresql_where=_EQUALITY),
    sqlite_with_rowid=False,
)

task = Table(
    "compaction_task",
    metadata,
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
    Column("reason", Text),
    Column("result", Json(MergeResult)),
    Column("record_id", String),
    # Of its data files: what is planned, and what waits for a commit, is bounded by bytes too.
    Column("input_bytes", BigInteger, nullable=False, server_default="0"),
    # A poll takes the first Pending one by priority and age, whatever the number of ended ones.
    Index("compaction_task_poll", "status", "priority", "created_at", "task_id"),
    # Plans and commits ask for the open tasks of one table.
    Index("compaction_task_identifier", "identifier", "status"),
    # A commit that is settled finds its tasks by record.
    Index("compaction_task_record", "record_id"),
)

task_input = Table(
    "compaction_task_input",
    metadata,
    # The key clusters a task's paths; `in_use` reads them by task. Nothing looks for one path in all of them.
    Column("task_id", ForeignKey("compaction_task.task_id", ondelete="CASCADE"), primary_key=True),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("path", Text, nullable=False),
    sqlite_with_rowid=False,
)

attempt = Table(
    "compaction_attempt",
    metadata,
    Column("task_id", ForeignKey("compaction_task.task_id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("attempt_id", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("started_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("end_reason", Member(EndReason)),
    Column("reason", Text),
    # Nothing may ever run under an attempt id that was used before: files are told apart by it.
    Index("compaction_attempt_id", "attempt_id", unique=True),
)

record = Table(
    "compaction_record",
    metadata,
    Column("record_id", String, primary_key=True),
    Column("identifier", String, nullable=False),
    Column("status", Member(RecordStatus), nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("ended_at", Moment),
    Column("mirrored", Boolean, nullable=False),
    Column("value", Json(CompactionRecord), nullable=False),
    # History is shown newest first, of one table or of all.
    Index("compaction_record_identifier", "identifier", "created_at"),
    Index("compaction_record_created_at", "created_at"),
    # Every tick asks for the few that are unsettled or not mirrored.
    Index("compaction_record_status", "status", "mirrored"),
)

lease = Table(
    "compaction_lease",
    metadata,
    Column("name", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("expires_at", Moment, nullable=False),
)
