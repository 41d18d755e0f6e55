"""The one list of checks. The command line and Dagster share it.

`CHECKS` judge a deployment. `CHECKS_AS_OF_NOW` judge tables as they are at this moment, for somebody who has no history of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from compaction_pipeline.core.insight.checks.budgets import low_use_share, within_budget
from compaction_pipeline.core.insight.checks.commits import commits_on_time, record_matches_table
from compaction_pipeline.core.insight.checks.due_now import due_now
from compaction_pipeline.core.insight.checks.due_work import due_work_on_time
from compaction_pipeline.core.insight.checks.facts import Facts
from compaction_pipeline.core.insight.checks.jobs_start import jobs_start
from compaction_pipeline.core.insight.checks.judgement import Judgement, Severity
from compaction_pipeline.core.insight.checks.merges import rows_preserved, target_file_size
from compaction_pipeline.core.insight.checks.no_job_alerts import no_job_alerts
from compaction_pipeline.core.insight.checks.nothing_missed import nothing_missed
from compaction_pipeline.core.insight.checks.queues import queue_keeps_up
from compaction_pipeline.core.insight.checks.small_files import small_files_left
from compaction_pipeline.core.insight.checks.tables_healthy import tables_healthy
from compaction_pipeline.core.insight.checks.unique_keys import unique_keys
from compaction_pipeline.core.insight.checks.watermarks_move import watermarks_move


class About(str, Enum):
    """What a check is about."""

    FILES = "FILES"
    """The files of nodes."""
    RECORDS = "RECORDS"
    """The commits of tables."""
    QUEUES = "QUEUES"
    """The tasks that wait in the queues of groups."""
    CAPACITY = "CAPACITY"
    """What teams and optimizers use."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `description` says what holds while it passes, and what to do when it fails.

    `needs_tables` is True when the facts must have the metadata of the tables, which come from their catalogs.
    `reads_rows` is True when it reads rows of tables. Then sensors and runs judge it only while there are few rows.
    `needs_history` is True when it judges how long something has waited. `DUE_NOW` stands for it where there is no history.
    """

    name: str
    about: About
    severity: Severity
    judge: Callable[[Facts], Judgement]
    description: str
    needs_tables: bool = False
    reads_rows: bool = False
    needs_history: bool = False


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check and its judgement.

    `on_demand` is True when nothing was judged, because the check reads more rows than those who judge again and again may read.
    """

    check: Check
    judgement: Judgement
    on_demand: bool = False

    @property
    def passed(self) -> bool:
        return self.judgement.passed

    @property
    def evaluated(self) -> bool:
        return self.judgement.evaluated

    @property
    def failed(self) -> bool:
        return bool(self.judgement.failures)

    @property
    def outcome(self) -> str:
        """A short text that changes when the check passes or fails anew, or when other nodes or tables fail. Ages do not change it."""
        if not self.evaluated:
            return "not evaluated"
        names = "\n".join(sorted(failure.name for failure in self.judgement.failures))
        return f"{len(self.judgement.failures)} {sha256(names.encode()).hexdigest()[:12]}"


CHECKS: tuple[Check, ...] = (
    Check(
        "rows_preserved",
        About.FILES,
        Severity.ERROR,
        lambda facts: rows_preserved(facts.nodes, facts.unmerged),
        "The rows that each merge wrote have the same digest as the rows that it read. When this is red, nothing was committed and no row "
        "is lost. But the node is not compacted until a merge of it succeeds. Keep its files, and report the task's reason.",
    ),
    Check(
        "small_files_left",
        About.FILES,
        Severity.WARN,
        lambda facts: small_files_left(facts.compacted_nodes, facts.now),
        "Each node that has enough small files for a MINOR is planned in time. The check waits while tasks of the node are open. It also "
        "waits while the table has open tasks and the quota, a full queue or files in use keep the node waiting, and for some minutes "
        "after the node got these files, was merged or was first seen: twice 'self-optimizing.min-plan-interval', plus two minutes. When "
        "this is red, see that `snapshot_sensor` and `fragmentation_sensor` are on, or launch the listed nodes.",
        needs_history=True,
    ),
    Check(
        "due_work_on_time",
        About.FILES,
        Severity.ERROR,
        lambda facts: due_work_on_time(facts.compacted_nodes, facts.now),
        "No node waits for due work longer than its table allows. The limit is the largest of these: "
        "'self-optimizing.minor.trigger.interval'; twice the sum of 'self-optimizing.min-plan-interval' and "
        "'self-optimizing.commit.interval'; 10 minutes. When this is red, readers open too many files: see that the sensors are on "
        "and that runs of `compact_job` end well, give them more Spark slots, or launch the listed nodes.",
        needs_history=True,
    ),
    Check(
        "target_file_size",
        About.FILES,
        Severity.WARN,
        lambda facts: target_file_size(facts.merged),
        "The newest merges of each node wrote files of the size that the table asks for. When this is red, check "
        "'self-optimizing.target-size' and 'self-optimizing.max-task-size-bytes' of the table.",
    ),
    Check(
        "tables_healthy",
        About.FILES,
        Severity.WARN,
        lambda facts: tables_healthy(facts.compacted_nodes),
        "The health score of each table is at least its 'compaction.health.min-score', by default 50. When this is red, the reason names "
        "what costs the most points, and the type of compaction that is due or would help. Where writers are always faster than the "
        "triggers, lower 'self-optimizing.minor.trigger.file-count', or the bound.",
    ),
    Check(
        "commits_on_time",
        About.RECORDS,
        Severity.WARN,
        lambda facts: commits_on_time(
            facts.prepared, {each.table: each.properties.commit_interval for each in facts.tables if each.properties is not None}, facts.now
        ),
        "No merged task waits longer than twice its table's 'self-optimizing.commit.interval'. When this is red, see that `commit_sensor` "
        "is on. To commit now, materialize the table's partition of `compaction_records`.",
    ),
    Check(
        "record_matches_table",
        About.RECORDS,
        Severity.ERROR,
        lambda facts: record_matches_table(facts.committed),
        "The newest record of each table agrees with the table's own metadata. When this is red, the table was rolled back, another "
        "tool replaced its history, or the table could not be read. Compare `compaction-pipeline record show` with the table's snapshots.",
        needs_tables=True,
    ),
    Check(
        "watermarks_move",
        About.RECORDS,
        Severity.WARN,
        lambda facts: watermarks_move(facts.watermarks, facts.now),
        "Each writer of a table that somebody waits for has moved its watermark in the last 24 hours, or in the time that the table's "
        "'compaction.watermark-stands-at-most' says. Whoever asks whether partitions are ready waits: a FULL with "
        "'compaction.full.when-ready', an asset, a job, a scheduler. When this is red, see that the listed writer runs and that events "
        "reach it. One that has ended for good goes out of 'compaction.watermark-writers'.",
        needs_history=True,
    ),
    Check(
        "queue_keeps_up",
        About.QUEUES,
        Severity.WARN,
        lambda facts: queue_keeps_up(facts.queues, facts.now),
        "The tasks of each group are merged about as fast as they are planned. The check fails when a task has waited for more than ten "
        "minutes and one of these holds: nobody merges in its group; all that waits there would need more than an hour at the pace of the"
        " last ten minutes; none was merged in ten minutes and the task has waited for more than an hour. When this is red, see that "
        "`fragmentation_sensor` is on and that runs of `compact_job` end well, or add optimizers to the group. It also fails when reports "
        "of optimizers could not be true: `optimizer list --all` and `token list` show whose.",
    ),
    Check(
        "jobs_start",
        About.QUEUES,
        Severity.WARN,
        lambda facts: jobs_start(facts.jobs, facts.now),
        "Each job that the dependency center released is claimed within ten minutes, and reported as running within ten more. Nothing is "
        "started a second time by itself. When this is red, see that the listed receiver claims and reports, or let the job run again. It "
        "also fails when the count of what instances miss is wrong, which is a fault of this program.",
        needs_history=True,
    ),
    Check(
        "nothing_missed",
        About.QUEUES,
        Severity.WARN,
        lambda facts: nothing_missed(facts.missed, facts.now),
        "In the last day the patrol of the dependency center found no change of a table whose writers report their commits. What it finds, "
        "a report should have told, and what waited for it started some seconds later. When this is red, see that each commit of the "
        "listed tables is reported.",
        needs_history=True,
    ),
    Check(
        "no_job_alerts",
        About.QUEUES,
        Severity.WARN,
        lambda facts: no_job_alerts(facts.alerts),
        "No job of the dependency center waits for another one of which it reads nothing, no virtual job has been silent for twice its "
        "period, and all SQL of jobs was understood. A server looks every ten minutes. When this is red, let the named owner change the "
        "project, or report the job; `compaction-pipeline dependencies lineage` lists the same.",
    ),
    Check(
        "within_budget",
        About.CAPACITY,
        Severity.WARN,
        lambda facts: within_budget(facts.teams),
        "No team uses more than its limits with its loans allow. A task runs to its end, and idle optimizers of a group that names a team "
        "cost it GB-hours, so a team can pass its GB-hours of the day. When this is red, nothing new of the listed team begins until a "
        "task ends or the next day (UTC) begins: raise the limit, lend it some, or drain optimizers that it does not need.",
    ),
    Check(
        "low_use_share",
        About.CAPACITY,
        Severity.WARN,
        lambda facts: low_use_share(facts.low_use),
        "At most a tenth of each team's optimizer-hours of the last day were of low use: slots without tasks, cores without work, memory "
        "that nobody needed. Optimizers of a group that names a team are the team's; the others are shared by slot time. When this is "
        "red, run the commands that `compaction-pipeline optimizer use` prints.",
        needs_history=True,
    ),
    Check(
        "unique_keys",
        About.RECORDS,
        Severity.ERROR,
        lambda facts: unique_keys(facts.keys),
        "In a keyed table with 'compaction.upsert' each key has one live row for readers of both stores. The check reads the keys of "
        "at most 5,000,000 stored rows of each table, whole nodes only, and begins with another node each day; larger nodes are left out. "
        "Sensors and runs judge it after each commit while all such tables together have at most 100,000 rows in 50 files. Beyond that it "
        "is judged on demand: launch `compaction_checks_job`, or run `compaction-pipeline check`. When this is red, see which writer put "
        "the key in without a delete. Then write a DELETE and an INSERT of it.",
        reads_rows=True,
    ),
)

DUE_NOW = Check(
    "due_now",
    About.FILES,
    Severity.ERROR,
    lambda facts: due_now(facts.looked_at),
    "No node has enough small files, deleted rows or undersized files for a compaction at this moment. Intervals do not count, nor does it "
    "matter how long the work has been due. Only who asks for the tables as they are now gets this check. When this is red, compact the "
    "listed tables: `compaction-pipeline compact TABLE`.",
)

CHECKS_AS_OF_NOW: tuple[Check, ...] = (DUE_NOW, *(check for check in CHECKS if not check.needs_history))
"""The checks for a look at the tables as they are now. `DUE_NOW` is in the place of those that need a history."""
