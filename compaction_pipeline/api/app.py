"""Puts the routes together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from compaction_pipeline.api.bodies import Bodies
from compaction_pipeline.api.catalog_files import catalog_file_routes
from compaction_pipeline.api.catalogs import catalog_routes
from compaction_pipeline.api.center import center_routes
from compaction_pipeline.api.consumers import consumer_routes
from compaction_pipeline.api.conversions import conversion_routes
from compaction_pipeline.api.costs import cost_routes
from compaction_pipeline.api.dependencies import dependency_routes
from compaction_pipeline.api.docs_pages import add_docs
from compaction_pipeline.api.events import event_routes
from compaction_pipeline.api.files import file_routes
from compaction_pipeline.api.groups import group_routes
from compaction_pipeline.api.health import health_routes
from compaction_pipeline.api.insight import insight_routes
from compaction_pipeline.api.metrics import Durations, metrics_route, register_center
from compaction_pipeline.api.openapi import complete_document
from compaction_pipeline.api.optimizers import optimizer_routes, steering_routes
from compaction_pipeline.api.outlook import outlook_routes
from compaction_pipeline.api.patience import Patience
from compaction_pipeline.api.problems import answer_with_problems
from compaction_pipeline.api.rate_limit import RateLimit
from compaction_pipeline.api.reports import report_routes
from compaction_pipeline.api.security import Guard, no_token, unknown_token
from compaction_pipeline.api.tables import table_routes
from compaction_pipeline.api.tasks import task_routes
from compaction_pipeline.api.teams import team_routes
from compaction_pipeline.api.wrong_tokens import AnswerWrongTokens, WrongTokens
from compaction_pipeline.bootstrap import Services

VERSION_PREFIX = "/api/v1"


def http_app(services: Services, beside: AbstractContextManager[object] | None = None, patience: Patience = Patience()) -> FastAPI:
    """The application over these services. `beside` is entered when it starts and left when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with beside or nullcontext():
            yield

    app = FastAPI(
        title="compaction-pipeline",
        version=services.version,
        description="Merges the small files of Apache Iceberg tables. `api/ROUTES.md` explains every route.",
        lifespan=lifespan,
        # `add_docs` serves these pages.
        openapi_url=None,
    )
    answer_with_problems(app)
    complete_document(app)
    wrong = WrongTokens(services.own_clock)
    app.add_middleware(AnswerWrongTokens, wrong=wrong, answer=unknown_token(), without=no_token(), paths=(VERSION_PREFIX, "/metrics"))
    guard = Guard(services.keep_tokens, RateLimit(services.own_clock), wrong, patience.body_seconds)
    bodies = Bodies(guard.count_bytes, patience.body_seconds)
    optimizers = services.serve_optimizers
    app.include_router(health_routes(services.check_ready, services.own_clock, patience.database))
    registry = CollectorRegistry()
    app.add_middleware(Durations, registry=registry)
    read = services.read_tables, services.read_tasks, services.read_queues
    register_center(registry, services.center_figures)
    app.include_router(metrics_route(registry, *read, optimizers, services.keep_tokens, guard))
    app.include_router(optimizer_routes(optimizers, services.keep_tokens, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(steering_routes(optimizers, guard, bodies), prefix=VERSION_PREFIX)
    groups = group_routes(services.manage_groups, services.read_queues, services.read_containers, guard, bodies)
    app.include_router(groups, prefix=VERSION_PREFIX)
    catalog_files = catalog_file_routes(services.site_files, guard, bodies)
    catalogs = catalog_routes(services.manage_catalogs, services.explore_catalogs, guard, bodies)
    app.include_router(catalogs, prefix=VERSION_PREFIX)
    app.include_router(catalog_files, prefix=VERSION_PREFIX)
    app.include_router(report_routes(services.take_reports, services.read_readiness, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(event_routes(services.take_events, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(consumer_routes(services.keep_consumers, guard, bodies), prefix=VERSION_PREFIX)
    tell = services.tell_readiness if services.settings.ready_callback_url is not None else None
    app.include_router(dependency_routes(services.read_readiness, tell, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(center_routes(services.center, services.facts_set_aside, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(conversion_routes(services.convert_project, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(outlook_routes(services, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(file_routes(services.read_tables, services.read_files, guard), prefix=VERSION_PREFIX)
    app.include_router(
        insight_routes(services.read_tables, services.read_records, services.read_upkeep, services.read_tasks, optimizers, guard),
        prefix=VERSION_PREFIX,
    )
    app.include_router(cost_routes(services.read_costs, services.read_use, services.read_scaling, guard), prefix=VERSION_PREFIX)
    app.include_router(team_routes(services.manage_teams, guard, bodies), prefix=VERSION_PREFIX)
    app.include_router(task_routes(services.read_tasks, services.steer_tasks, guard), prefix=VERSION_PREFIX)
    tables = table_routes(services.read_tables, services.plan_tables, services.one_table, services.explore_catalogs, guard)
    app.include_router(tables, prefix=VERSION_PREFIX)
    add_docs(app)
    return app
