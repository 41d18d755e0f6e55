"""`/metrics`: the figures of the state database in the format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from fastapi import APIRouter, Depends, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.commit.record import RecordStatus
from compaction_pipeline.core.dependencies.center.figures import CenterFigures
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.services.access.keep_tokens import KeepTokens
from compaction_pipeline.services.insight.read_queues import ReadQueues
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.services.insight.read_tasks import ReadTasks
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class _Figures(Collector):
    """Reads the figures anew for each scrape, so that all servers on one state database show the same."""

    def __init__(self, tables: ReadTables, tasks: ReadTasks, queues: ReadQueues, optimizers: ServeOptimizers, tokens: KeepTokens) -> None:
        self._queues = queues
        self._tokens = tokens
        self._tables = tables
        self._tasks = tasks
        self._optimizers = optimizers

    def collect(self) -> Iterable[Metric]:
        counts = plain(self._tasks.queue_counts())
        assert isinstance(counts, dict)
        tasks = GaugeMetricFamily("compaction_tasks", "Tasks by status", labels=["status"])
        for status, count in counts.items():
            tasks.add_metric([status], count)
        yield tasks
        health = GaugeMetricFamily("compaction_tables", "Tables by health", labels=["health"])
        for name, count in Counter(table.health.value for table in self._tables.tables()).items():
            health.add_metric([name], count)
        yield health
        slots = GaugeMetricFamily("compaction_optimizer_slots", "Tasks that live optimizers can merge at a time", labels=["group", "state"])
        of: Counter[tuple[str, str]] = Counter()
        for optimizer in self._optimizers.optimizers(live=True):
            of[optimizer.group, optimizer.state.value] += optimizer.parallelism
        for labels, count in of.items():
            slots.add_metric(list(labels), count)
        yield slots
        yield from self._of_queues()
        yield from self._ended()
        blocked = sum(token.blocked_at is not None for token in self._tokens.tokens())
        yield GaugeMetricFamily("compaction_blocked_tokens", "Tokens with which no optimizer may register", value=blocked)

    def _of_queues(self) -> Iterable[Metric]:
        found, labels = self._queues.queues(), ["group", "queue"]
        tasks = GaugeMetricFamily("compaction_queue_tasks", "Tasks of a queue, by what they wait for", labels=[*labels, "state"])
        wait = GaugeMetricFamily("compaction_queue_oldest_wait_seconds", "How long the first waiting task has waited", labels=labels)
        for work in found.all_works:
            names = [work.queue if work.queue in found.groups else "", work.queue]
            counts = {"waiting": work.pending, "running": work.executing, "merged": work.prepared, "held": work.held}
            for state, count in {**counts, "retrying": work.retrying, "paused": work.paused}.items():
                tasks.add_metric([*names, state], count)
            wait.add_metric(names, 0 if work.waiting_since is None else max(0, (found.at - work.waiting_since).total_seconds()))
        yield from (tasks, wait)

    def _ended(self) -> Iterable[Metric]:
        ended = self._queues.ended()
        attempts = CounterMetricFamily("compaction_attempts", "Attempts that ended, by their end", labels=["queue", "end_reason"])
        merged = CounterMetricFamily("compaction_merged_bytes", "Bytes of the data files that merges read", labels=["queue"])
        cpu = CounterMetricFamily("compaction_cpu_seconds", "CPU that merges used in Python, as their reports say", labels=["queue"])
        refused = CounterMetricFamily("compaction_refused_reports", "Reports that could not be true", labels=["queue"])
        commits = CounterMetricFamily("compaction_commits", "Commits that ended, by their outcome", labels=["outcome"])
        for (queue, end_reason), count in ended.attempts.items():
            attempts.add_metric([queue, end_reason.value], count)
        for work in self._queues.queues().all_works:
            merged.add_metric([work.queue], ended.merged_bytes.get(work.queue, 0))
            refused.add_metric([work.queue], ended.attempts.get((work.queue, EndReason.REPORT_REFUSED), 0))
            cpu.add_metric([work.queue], ended.cpu_seconds.get(work.queue, 0))
        for outcome in (RecordStatus.COMMITTED, RecordStatus.FAILED):
            commits.add_metric([outcome.value], ended.commits.get(outcome.value, 0))
        yield from (attempts, merged, cpu, refused, commits)


class _Center(Collector):
    """The figures of the dependency center."""

    def __init__(self, read: Callable[[], CenterFigures]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        figures = self._read()
        instances = GaugeMetricFamily("compaction_center_instances", "Instances that have not succeeded, by state", labels=["state"])
        for state, count in figures.instances.items():
            instances.add_metric([state.value], count)
        yield instances
        for name, text, since in (
            ("unclaimed", "How long the first ready instance has waited for its receiver", figures.unclaimed_since),
            ("report", "How long the first report has waited for the leader", figures.report_since),
        ):
            yield GaugeMetricFamily(f"compaction_center_oldest_{name}_seconds", text, value=figures.age(since).total_seconds())
        p99 = figures.delay(0.99)
        yield GaugeMetricFamily(
            "compaction_center_p99_delay_seconds",
            "Delay of the newest 1,000 ready instances from what they needed to READY, at p99; NaN without any",
            value=float("nan") if p99 is None else p99.total_seconds(),
        )
        yield GaugeMetricFamily(
            "compaction_center_facts_set_aside",
            "Facts that could not be applied, and are kept: `dependencies set-aside` lists them",
            value=figures.set_aside,
        )
        yield GaugeMetricFamily(
            "compaction_center_missed_events",
            "Changes of the last day that the patrol found, and detectors missed: of tables whose writers report",
            value=figures.missed,
        )
        alerts = GaugeMetricFamily(
            "compaction_center_alerts",
            "What owners of jobs should look at: `dependencies lineage` lists it; without an owner, the label is empty",
            labels=["owner"],
        )
        for owner, count in sorted(figures.alerts.items()):
            alerts.add_metric([owner], count)
        yield alerts


class Durations:
    """An ASGI middleware that measures how long polls and reports take, in this server. A poll may wait for a task."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._polls = Histogram(
            "compaction_poll_duration_seconds", "Time of polls, with their wait for a task", buckets=_SECONDS, registry=registry
        )
        self._reports = Histogram(
            "compaction_report_duration_seconds", "Time of reports of attempts and of commits", buckets=_SECONDS, registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        histogram = self._of(scope)
        if histogram is None:
            await self._app(scope, receive, send)
            return
        with histogram.time():
            await self._app(scope, receive, send)

    def _of(self, scope: Scope) -> Histogram | None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return None
        last = scope["path"].rpartition("/")[2]
        return self._polls if last == "poll" else self._reports if last in ("complete", "commits") else None


def metrics_route(
    registry: CollectorRegistry,
    tables: ReadTables,
    tasks: ReadTasks,
    queues: ReadQueues,
    optimizers: ServeOptimizers,
    tokens: KeepTokens,
    guard: Guard,
) -> APIRouter:
    """`/metrics`, for readers."""
    routes = APIRouter(tags=["insight"], responses=ANSWERS, dependencies=[Depends(guard.needs(Role.READER))])
    registry.register(_Figures(tables, tasks, queues, optimizers, tokens))

    @routes.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def register_center(registry: CollectorRegistry, read: Callable[[], CenterFigures]) -> None:
    """Let `/metrics` have the figures of the dependency center."""
    registry.register(_Center(read))
