"""Routes that convert the rule of a project to root and end nodes."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.openapi import plain_answer
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.dependencies.center.subjects import MOST_BYTES
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.services.dependencies.convert_project import MOST_DAYS, Conversion, ConvertProject


class Action(str, Enum):
    """What is done with the rule of a project."""

    SHADOW = "SHADOW"
    SWITCH = "SWITCH"
    TIGHTEN = "TIGHTEN"
    BACK = "BACK"


class ConversionBody(BaseModel):
    """What is done with the rule of a project. A shadow runs for so many days; `anyway` switches without one."""

    model_config = ConfigDict(extra="forbid")

    project: Annotated[str, Field(max_length=MOST_BYTES)]
    action: Action
    days: int = Field(default=7, ge=1, le=MOST_DAYS)
    anyway: bool = False


def conversion_routes(convert: ConvertProject, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes `/api/v1/dependencies/conversion` and `conversions`."""
    routes = APIRouter(prefix="/dependencies", tags=["dependencies"], responses=ANSWERS)
    reader, needs_admin = Depends(guard.needs(Role.READER)), guard.needs(Role.ADMIN)
    conversion_from = bodies.of(ConversionBody, needs_admin, body_bounds.OTHER, secret=False)
    answer = {"response_model": None, "responses": plain_answer(Conversion)}

    @routes.get("/conversion", dependencies=[reader], **answer)  # type: ignore[arg-type]
    def look(project: Annotated[str, Query(max_length=MOST_BYTES)]) -> Any:
        """Which form stands for the rule of a project, and how the moments of its shadow differ."""
        return plain(convert.look(project))

    @routes.post("/conversions", dependencies=[Depends(needs_admin)], openapi_extra=body_of(ConversionBody), **answer)  # type: ignore[arg-type]
    def change(body: ConversionBody = Depends(conversion_from)) -> Any:
        """Run the form by nodes in shadow beside the rule of a project, switch to it, tighten it, or go back."""
        match body.action:
            case Action.SHADOW:
                return plain(convert.shadow(body.project, body.days))
            case Action.SWITCH:
                return plain(convert.switch(body.project, anyway=body.anyway))
            case Action.TIGHTEN:
                return plain(convert.tighten(body.project))
            case Action.BACK:
                return plain(convert.back(body.project))

    return routes
