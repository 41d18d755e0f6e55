"""`/metrics`: the figures of the state database in the format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fastapi import APIRouter, Depends, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.services.access.keep_tokens import KeepTokens
from compaction_pipeline.services.insight.read_tables import ReadTables
from compaction_pipeline.services.insight.read_tasks import ReadTasks
from compaction_pipeline.services.queue.serve_optimizers import ServeOptimizers


class _Figures(Collector):
    """Reads the figures anew for each scrape, so that all servers on one state database show the same."""

    def __init__(self, tables: ReadTables, tasks: ReadTasks, optimizers: ServeOptimizers, tokens: KeepTokens) -> None:
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
        refused = GaugeMetricFamily("compaction_refused_reports", "Reports of the last hour that could not be true", labels=["optimizer"])
        for optimizer_id, count in self._optimizers.refused_reports().items():
            refused.add_metric([optimizer_id], count)
        yield refused
        blocked = sum(token.blocked_at is not None for token in self._tokens.tokens())
        yield GaugeMetricFamily("compaction_blocked_tokens", "Tokens with which no optimizer may register", value=blocked)


def metrics_route(tables: ReadTables, tasks: ReadTasks, optimizers: ServeOptimizers, tokens: KeepTokens, guard: Guard) -> APIRouter:
    """`/metrics`, for readers."""
    routes = APIRouter(tags=["insight"], responses=ANSWERS, dependencies=[Depends(guard.needs(Role.READER))])
    registry = CollectorRegistry()
    registry.register(_Figures(tables, tasks, optimizers, tokens))

    @routes.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> Response:
        """Figures for Prometheus."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes
