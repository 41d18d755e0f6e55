"""Tables for people, made of what the planner and the use cases of `services.insight` answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from compaction_pipeline.cli.diagnosis import Finding, Soundness
from compaction_pipeline.cli.scores import score_cell, with_score
from compaction_pipeline.core.access.token import Role, Token
from compaction_pipeline.core.commit.record import CompactionRecord, RecordStatus
from compaction_pipeline.core.fragmentation.health import HealthStatus
from compaction_pipeline.core.fragmentation.verdict import NodeVerdict
from compaction_pipeline.core.insight.checks.judgement import Severity
from compaction_pipeline.core.insight.listed_files import ListedFile
from compaction_pipeline.core.insight.masking import masked_properties
from compaction_pipeline.core.insight.open_tasks import open_tasks_text
from compaction_pipeline.core.insight.overview import SHOWN, NodeOverview, TableOverview
from compaction_pipeline.core.planning.plan import CompactionPlan
from compaction_pipeline.core.queue.attempts import attempt_text
from compaction_pipeline.core.queue.container import Container
from compaction_pipeline.core.queue.group import ResourceGroup
from compaction_pipeline.core.queue.optimizer import Optimizer
from compaction_pipeline.core.queue.task import CompactionTask, TaskAttempt
from compaction_pipeline.core.tables.asset_key import asset_key_text
from compaction_pipeline.core.tables.catalog_properties import nearest_key
from compaction_pipeline.core.tables.data_file import LiveFile
from compaction_pipeline.core.tables.expiry_properties import UPKEEP_PROPERTIES
from compaction_pipeline.core.tables.figures import NodeMetrics
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.properties import TableProperties
from compaction_pipeline.core.tables.property_rules import PROPERTIES
from compaction_pipeline.core.tables.ready_properties import READY_PROPERTIES
from compaction_pipeline.core.words import bytes_text, change_text, count_text, duration_text, gb_hours_text, printable, time_text
from compaction_pipeline.core.work.ends import EndReason

if TYPE_CHECKING:
    from compaction_pipeline.core.insight.checks.every_check import CheckResult
    from compaction_pipeline.core.queue.queue_counts import QueueCounts
    from compaction_pipeline.core.queue.queue_work import QueueWork
    from compaction_pipeline.services.insight.read_queues import Queues

MOST_FILES = 100
"""The most files that a person is shown."""

_HEALTH_STYLE = {
    HealthStatus.FAILING: "bold red",
    HealthStatus.DUE: "yellow",
    HealthStatus.WAITING: "cyan",
    HealthStatus.REFUSED: "magenta",
    HealthStatus.HEALTHY: "green",
}
_STATUS_STYLE = {
    RecordStatus.COMMITTED: "green",
    RecordStatus.FAILED: "red",
    RecordStatus.OPEN: "cyan",
    RecordStatus.UNKNOWN: "bold red",
}
_SEVERITY_STYLE = {Severity.WARN: "yellow", Severity.ERROR: "bold red"}
_SOUNDNESS_STYLE = {Soundness.OK: "green", Soundness.WARNING: "yellow", Soundness.WRONG: "bold red"}


def tokens_table(tokens: Iterable[Token]) -> Table:
    """Each token's id, role, name, and whether it is still accepted."""
    table = titled_table("tokens", "id", "role", "name", "receivers", "issued", "revoked", "blocked")
    for token in tokens:
        revoked = "–" if token.revoked_at is None else time_text(token.revoked_at)
        blocked = "–" if token.blocked_at is None else time_text(token.blocked_at)
        named = (token.token_id, token.role.value, escape(token.name), escape(_receivers(token)))
        table.add_row(*named, time_text(token.created_at), revoked, blocked)
    return table


def _receivers(token: Token) -> str:
    if token.role is Role.ADMIN or (token.role is Role.WRITER and token.receivers is None):
        return "all"
    return ", ".join(token.receivers or ()) or "–"


def optimizers_table(optimizers: Iterable[Optimizer]) -> Table:
    """Each optimizer's id, group, place, size and state."""
    heads = ("id", "group", "state", "slots", "memory", "container", "resource", "host", "process", "version", "started", "last heard of")
    table = titled_table("optimizers", *heads, "why")
    for each in optimizers:
        table.add_row(
            each.optimizer_id,
            each.group,
            each.state.value,
            f"{each.parallelism:,}",
            bytes_text(each.memory_bytes) if each.memory_bytes else "–",
            escape(each.container),
            escape(each.resource_id) or "–",
            escape(each.host),
            escape(each.process) or "–",
            escape(each.version) or "–",
            time_text(each.started_at),
            time_text(each.touched_at),
            escape(each.why),
        )
    return table


def groups_table(groups: Iterable[ResourceGroup], problems: Mapping[str, str]) -> Table:
    """Each group's name, capacity, order, container and properties, and why it gets no optimizers."""
    table = titled_table("groups", "group", "capacity", "order", "container", "properties", "problem")
    for group in groups:
        table.add_row(
            group.name,
            f"{group.queue.capacity:,}",
            group.queue.order.value,
            escape(group.container),
            _properties(group.properties),
            escape(problems.get(group.name, "–")),
        )
    return table


def containers_table(containers: Iterable[Container]) -> Table:
    """Each container's name, kind and properties."""
    table = titled_table("containers", "container", "kind", "properties")
    for container in containers:
        table.add_row(container.name, container.kind.value, _properties(container.properties))
    return table


def _properties(properties: Mapping[str, str]) -> str:
    """Properties in one cell, without their secrets."""
    return escape(", ".join(f"{key}={value}" for key, value in sorted(masked_properties(properties).items()))) or "–"


def queues_table(queues: Queues, works: Iterable[QueueWork]) -> Table:
    """One line for each of these queues: what waits and runs, how full it is, and who works on it."""
    heads = ("group", "waiting", "oldest", "merging", "failed", "merged", "paused", "held", "refused", "full", "order", "slots")
    table = titled_table("queues", *heads)
    for work in works:
        group = queues.groups.get(work.queue)
        table.add_row(
            escape(work.queue),
            f"{work.pending:,}",
            "–" if work.waiting_since is None else duration_text(queues.at - work.waiting_since),
            *(f"{count:,}" for count in (work.executing, work.retrying, work.prepared, work.paused, work.held, work.refused_reports)),
            f"{work.taken:,}" if group is None else f"{work.taken:,} of {group.queue.capacity:,}",
            "no such group" if group is None else group.queue.order.value,
            str(queues.slots(work.queue)),
        )
    return table


def tables_table(tables: Iterable[TableOverview]) -> Table:
    """One line for each table: its figures, its health and its score, and the reasons for both."""
    table = titled_table("tables", "table", "health", "score", *_FIGURES, "why")
    for item in tables:
        notes = [item.reason] if item.warning is None else [item.reason, f"warning: {item.warning}"]
        modes = [word for word, holds in (("observed only", item.observe), ("paused", item.paused)) if holds]
        mode = f" ({', '.join(modes)})" if modes else ""
        figures = _figures(item.metrics) if item.is_read else ("–",) * len(_FIGURES)
        why = escape(with_score("; ".join(notes), item.score)) if item.is_read else escape("; ".join(notes))
        table.add_row(escape(str(item.table)) + mode, _health(item.health), score_cell(item.score), *figures, why)
    return table


def nodes_table(nodes: Iterable[NodeOverview], title: str = "nodes", *, with_table: bool = False) -> Table:
    """One line for each node, in the order given."""
    table = titled_table(title, *(["table"] if with_table else []), "node", "health", "score", *_FIGURES, "why")
    for node in nodes:
        first = [escape(str(node.table))] if with_table else []
        health, why = (_health(node.health), score_cell(node.score)), escape(with_score(node.reason, node.score))
        table.add_row(*first, node_cell(node.node), *health, *_figures(node.metrics), why)
    return table


def files_table(files: Sequence[LiveFile]) -> Table:
    """One line for each of the first MOST_FILES live files."""
    title = "files" if len(files) <= MOST_FILES else f"the first {MOST_FILES} of {len(files):,} files; --json lists all"
    table = titled_table(title, "node", "content", "size", "rows", "sequence", "path")
    for file in files[:MOST_FILES]:
        size = bytes_text(file.file_size_bytes)
        sequence = str(file.data_sequence_number)
        table.add_row(node_cell(file.node), file.content.value, size, f"{file.record_count:,}", sequence, escape(file.path))
    return table


def keyed_files_table(files: Sequence[ListedFile]) -> Table:
    """One line for each of the first MOST_FILES live files of both stores of a keyed table."""
    title = "files" if len(files) <= MOST_FILES else f"the first {MOST_FILES} of {len(files):,} files; --json lists all"
    table = titled_table(title, "node", "store", "holds", "size", "rows", "sequence", "may hide rows in", "path")
    for each in files[:MOST_FILES]:
        file, hides = each.file, ""
        if each.merged:
            hides = "nothing: it is merged, readers skip it"
        elif each.hides is not None:
            hides = f"{count_text(each.hides.files, 'file')} ({count_text(each.hides.rows, 'row')})" if each.hides.files else "nothing"
        size, sequence = bytes_text(file.file_size_bytes), str(file.data_sequence_number)
        table.add_row(
            node_cell(each.node), each.store.value.lower(), each.kind, size, f"{file.record_count:,}", sequence, hides, escape(file.path)
        )
    return table


def properties_in_force(properties: TableProperties, not_honoured: Mapping[str, str]) -> Table:
    """Every property with its value in force, and then those that are set and have no effect.

    `not_honoured` maps properties of Iceberg that a merge cannot follow to the reason.
    """
    table = titled_table("properties in force", "property", "value", "meaning")
    for item in PROPERTIES:
        table.add_row(item.key, escape(_value(getattr(properties, item.attribute))), escape(item.meaning))
    others = {**properties.upkeep, **properties.readiness}
    for item in (*UPKEEP_PROPERTIES, *READY_PROPERTIES):
        if item.key in others:
            table.add_row(item.key, escape(others[item.key]), escape(item.meaning))
    for problem in properties.problems:
        table.add_row("", "[yellow]no effect[/]", escape(problem))
    for key, instead in properties.ignored.items():
        table.add_row(escape(key), "ignored", escape(f"it has no effect here; {instead}"))
    for key in properties.unknown:
        table.add_row(escape(key), "[yellow]unknown[/]", f"there is no such property; do you mean {nearest_key(key)}?")
    for key, reason in not_honoured.items():
        table.add_row(escape(key), "[yellow]no effect[/]", escape(reason))
    return table


def plan_tasks_table(plan: CompactionPlan) -> Table:
    """One line for each task that would run."""
    table = titled_table("tasks", "node", "type", "action", "data files", "deletes applied", "bytes in", "files after")
    for task in plan.tasks:
        size, deletes = bytes_text(task.input_bytes), str(len(task.deletes))
        after = str(task.predicted_files)
        table.add_row(node_cell(task.node), task.type.value, task.action.value, str(task.files_read), deletes, size, after)
    return table


def left_alone_table(verdicts: Iterable[NodeVerdict]) -> Table:
    """One line for each node without a task, with the reason."""
    table = titled_table("left alone", "node", "data files", "small", "deletes", "why")
    for verdict in verdicts:
        metrics = verdict.metrics
        counts = (str(metrics.data_files), str(metrics.small_files), str(metrics.delete_files))
        table.add_row(node_cell(verdict.node), *counts, escape(verdict.reason.text))
    return table


def left_alone(plan: CompactionPlan) -> list[NodeVerdict]:
    """The verdicts of nodes without a task. A node that is due may be among them, when its files are in use or the budget is spent."""
    planned = {task.node for task in plan.tasks}
    return [verdict for verdict in plan.verdicts if verdict.node not in planned]


def records_table(records: Iterable[CompactionRecord]) -> Table:
    """One line for each record, in the order given."""
    table = titled_table("records", "record", "at", "table", "status", "types", "tasks", "data files", "delete files", "bytes", "why")
    for record in records:
        figures = record.figures
        table.add_row(
            record.record_id,
            time_text(record.created_at),
            escape(str(record.table)),
            _status(record.status),
            " ".join(kind.value for kind in record.types),
            f"{len(record.committed_task_ids)}/{len(record.task_ids) + len(record.failed)}",
            change_text(figures.files_before, figures.files_after),
            change_text(figures.delete_files_before, figures.delete_files_after),
            f"{bytes_text(figures.bytes_before)} → {bytes_text(figures.bytes_after)}",
            escape("; ".join(part for part in (record.reason, record.left_out) if part)),
        )
    return table


def record_table(record: CompactionRecord) -> Table:
    """All figures of one record, each on a line of its own."""
    table = Table(box=box.SIMPLE, show_header=False, title=f"record {record.record_id}", title_justify="left")
    figures = record.figures
    rows: list[tuple[str, str | Text]] = [
        ("table", str(record.table)),
        ("status", _status(record.status)),
        ("at", time_text(record.created_at)),
        ("types", " ".join(kind.value for kind in record.types)),
        ("snapshot", f"{record.snapshot_before} → {record.snapshot_after}"),
        (
            "tasks",
            f"{len(record.committed_task_ids)} committed of {len(record.task_ids) + len(record.failed)}, "
            f"{len(record.conflicts)} conflicts, {len(record.failed)} failed",
        ),
        ("data files", change_text(figures.files_before, figures.files_after)),
        ("delete files", change_text(figures.delete_files_before, figures.delete_files_after)),
        ("bytes", f"{bytes_text(figures.bytes_before)} → {bytes_text(figures.bytes_after)}"),
        (
            "merged",
            f"{figures.input_files:,} files ({bytes_text(figures.input_bytes)}) into {figures.output_files:,} "
            f"({bytes_text(figures.output_bytes)}); predicted {record.predicted_files:,} ({bytes_text(record.predicted_bytes)})",
        ),
        ("GB-hours", f"{gb_hours_text(record.gb_hours)}; predicted {gb_hours_text(record.predicted_gb_hours)}"),
        ("rows", f"{record.rows:,} written, {record.rows_deleted:,} deleted ones left out"),
        (
            "took",
            f"longest wait {_ms(record.queue_ms)}, all merges together {_ms(record.merge_ms)}, commit {_ms(record.commit_ms)} "
            f"({count_text(record.attempts, 'attempt')})",
        ),
    ]
    if record.waited:
        rows.append(("commit", record.waited))
    if record.run_id:
        rows.append(("Dagster run", record.run_id))
    if record.reason:
        rows.append(("why", record.reason))
    for task_id, why in record.conflicts.items():
        rows.append((f"conflict {task_id}", why))
    for task_id, why in record.failed.items():
        rows.append((f"failed {task_id}", why))
    for name, value in rows:
        table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def tasks_table(tasks: Iterable[CompactionTask], title: str, attempts: Mapping[str, Sequence[TaskAttempt]] | None = None) -> Table:
    """One line for each task. With `attempts` it tells who held each attempt that did not succeed, and how it ended, cut short."""
    table = titled_table(title, "task", "table", "node", "type", "status", "attempt", "data files", "bytes in", "held by", "why")
    for task in tasks:
        tries = [
            f"{item.number}, {item.owner}: {printable(item.reason or (item.end_reason.value if item.end_reason else 'running'), 300)}"
            for item in (attempts or {}).get(task.task_id, ())
            if item.end_reason is not EndReason.MERGED
        ]
        table.add_row(
            task.task_id,
            escape(str(task.table)),
            node_cell(task.work.node),
            task.work.type.value,
            task.status.value,
            attempt_text(task),
            str(task.work.files_read),
            bytes_text(task.work.input_bytes),
            escape(task.owner or ""),
            escape("\n".join(tries) or task.reason or ""),
        )
    return table


def task_times(task: CompactionTask) -> Table:
    """The times of one task, each on a line of its own. Times that have not come are left out."""
    table = Table(box=box.SIMPLE, show_header=False)
    for name, moment in task.times.items():
        if moment is not None:
            table.add_row(name.replace("_", " "), time_text(moment))
    return table


def queue_line(queue: QueueCounts) -> Text:
    """How many tasks have each status, in one line."""
    return Text(
        f"queue: {open_tasks_text(queue.open_tasks)}; "
        f"ended and not yet expired: {queue.committed} committed, {queue.failed} failed, {queue.canceled} canceled, "
        f"{queue.replaced} replaced by larger tasks"
    )


def findings_table(findings: Iterable[Finding]) -> Table:
    """One line for each finding of `doctor`."""
    table = titled_table("doctor", "what", "", "found", "how to mend it")
    for finding in findings:
        word = Text(finding.soundness.value, style=_SOUNDNESS_STYLE[finding.soundness])
        table.add_row(escape(finding.subject), word, escape(finding.found), escape(finding.mend or ""))
    return table


def checks_table(results: Iterable[CheckResult]) -> Table:
    """One line for each check: its result in one word, and in one sentence."""
    table = titled_table("checks", "check", "severity", "", "result")
    for result in results:
        severity = result.check.severity
        if not result.evaluated:
            word = Text("not evaluated", style="yellow")
        else:
            word = Text("passed", style="green") if result.passed else Text("failed", style=_SEVERITY_STYLE[severity])
        table.add_row(escape(result.check.name), severity.value, word, escape(result.judgement.text))
    return table


def failures_table(result: CheckResult) -> Table:
    """The nodes or tables that fail a check, 20 at most, the worst first."""
    failures = result.judgement.failures
    shown = f", the first {SHOWN} of {len(failures)}" if len(failures) > SHOWN else ""
    table = titled_table(f"{result.check.name}{shown}", "table", "node", "why it fails")
    for failure in failures[:SHOWN]:
        table.add_row(escape(failure.place), node_cell(failure.node) if failure.node is not None else "", escape(failure.reason))
    table.caption = escape(result.check.description)
    return table


_FIGURES = ("data files", "delete files", "small files", "size", "rows")


def _figures(metrics: NodeMetrics) -> tuple[str, ...]:
    return (
        f"{metrics.data_files:,}",
        f"{metrics.delete_files:,}",
        f"{metrics.small_files:,}",
        bytes_text(metrics.data_bytes + metrics.delete_bytes),
        f"{metrics.rows:,}",
    )


_RIGHT = frozenset({*_FIGURES, "score", "bytes in", "files after", "deletes applied", "sequence", "tasks", "bytes", "attempt"})


def titled_table(title: str, *columns: str) -> Table:
    """An empty table with these columns."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in _RIGHT else "left", overflow="fold")
    return table


def node_cell(node: TableNode) -> str:
    return escape(str(node))


def _health(health: HealthStatus) -> Text:
    return Text(health.value, style=_HEALTH_STYLE[health])


def _status(status: RecordStatus) -> Text:
    return Text(status.value, style=_STATUS_STYLE[status])


def _ms(milliseconds: int) -> str:
    return duration_text(timedelta(milliseconds=milliseconds))


def _value(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)} ({duration_text(value)})"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return asset_key_text(value) or "none"
    return "off" if value is None else str(value)
