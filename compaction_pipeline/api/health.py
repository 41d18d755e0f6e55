"""Routes that tell whether the server works."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter
from pydantic import BaseModel

from compaction_pipeline.api.problems import ANSWERS


class Health(BaseModel):
    """`ok` is always true; a server that is not well answers with an error."""

    ok: bool = True


def health_routes(look: Callable[[], object]) -> APIRouter:
    """`/health/live` and `/health/ready`, which need no token. `look` raises StorageUnavailable when the state database does not answer."""
    routes = APIRouter(tags=["health"], responses={503: ANSWERS[503]})

    @routes.get("/health/live")
    async def live() -> Health:
        """The process runs."""
        return Health()

    @routes.get("/health/ready")
    def ready() -> Health:
        """The state database answers too."""
        look()
        return Health()

    return routes
