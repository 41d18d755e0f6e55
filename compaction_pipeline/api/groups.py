"""Routes of resource groups and their queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.insight.group_value import container_value, group_value
from compaction_pipeline.core.insight.plain import plain
from compaction_pipeline.core.queue.container import ContainerKind
from compaction_pipeline.core.queue.group import DEFAULT_CAPACITY, EXTERNAL, MOST_CAPACITY, CompactionQueue, QueueOrder, ResourceGroup
from compaction_pipeline.services.insight.read_queues import ReadQueues
from compaction_pipeline.services.queue.manage_groups import ManageGroups
from compaction_pipeline.services.queue.read_containers import ReadContainers

_Capacity = Annotated[int, Field(ge=1, le=MOST_CAPACITY)]
_Container = Annotated[str, Field(min_length=1, max_length=200)]
_Properties = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=200)], Annotated[str, Field(max_length=2_000)]], Field(max_length=100)
]


class GroupBody(BaseModel):
    """A new group."""

    model_config = ConfigDict(extra="forbid")

    group: str = Field(max_length=200)
    capacity: _Capacity = DEFAULT_CAPACITY
    order: QueueOrder = QueueOrder.PRIORITY
    container: _Container = EXTERNAL
    properties: _Properties = {}


class GroupChange(BaseModel):
    """What is to change. The rest stays, properties that are not named too. A property with the value "" is removed."""

    model_config = ConfigDict(extra="forbid")

    capacity: _Capacity | None = None
    order: QueueOrder | None = None
    container: _Container | None = None
    properties: _Properties | None = None

    def applied_to(self, old: ResourceGroup) -> ResourceGroup:
        """Return the group with what is to change."""
        queue = CompactionQueue(self.capacity or old.queue.capacity, self.order or old.queue.order)
        properties = old.changed_properties(self.properties or {})
        return replace(old, container=self.container or old.container, properties=properties, queue=queue)


class GroupAnswer(BaseModel):
    """A group. Secrets of its properties are hidden. `problem` and `warning` are there only when there is one."""

    group: str
    capacity: int
    order: QueueOrder
    container: str
    properties: dict[str, str]
    problem: str = ""
    warning: str = ""


class QueueAnswer(BaseModel):
    """A queue: its tasks by what becomes of them, and who works on them. `free` is negative after the capacity was made smaller.

    `order`, `capacity` and `free` are null for a queue whose group does not exist.
    """

    group: str
    order: QueueOrder | None
    capacity: int | None
    free: int | None
    waiting: int
    merging: int
    failed: int
    merged: int
    paused: int
    held: int
    refused_reports: int
    oldest_wait_seconds: float | None
    optimizers: int
    slots: int


class ContainerAnswer(BaseModel):
    """A container. Secrets of its properties are hidden."""

    container: str
    kind: ContainerKind
    properties: dict[str, str]


def group_routes(groups: ManageGroups, queues: ReadQueues, containers: ReadContainers, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` about groups, their queues and containers."""
    routes = APIRouter(tags=["groups"], responses=ANSWERS)
    needs_admin = guard.needs()
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(needs_admin)]
    group_body = bodies.of(GroupBody, needs_admin, body_bounds.OTHER)
    change_body = bodies.of(GroupChange, needs_admin, body_bounds.OTHER)

    def changed(group: ResourceGroup) -> Any:
        return plain(group_value(group, warning=groups.warning(group)))

    @routes.get("/groups", dependencies=reader, response_model=list[GroupAnswer], response_model_exclude_unset=True)
    def all_groups() -> list[Any]:
        """All groups, by name. One whose container fails to start optimizers has a `problem`."""
        problems = queues.start_problems()
        return [plain(group_value(group, problems.get(group.name))) for group in groups.groups()]

    @routes.get("/groups/{name}", dependencies=reader, response_model=GroupAnswer, response_model_exclude_unset=True)
    def one_group(name: str) -> Any:
        """One group."""
        return plain(group_value(groups.group(name), queues.start_problems().get(name)))

    @routes.get("/groups/{name}/command", dependencies=admin)
    def command(name: str) -> list[str]:
        """The command line that runs an optimizer of this group by hand. It names a file with the token, and never the token."""
        return list(containers.command(name))

    @routes.post(
        "/groups",
        status_code=201,
        dependencies=admin,
        openapi_extra=body_of(GroupBody),
        response_model=GroupAnswer,
        response_model_exclude_unset=True,
    )
    def add(body: GroupBody = Depends(group_body)) -> Any:
        """Make a group. The answer has a `warning` when a part of it is useless, or when this server does not know its container."""
        group = ResourceGroup(body.group, body.container, body.properties, CompactionQueue(body.capacity, body.order))
        return changed(groups.add(group))

    @routes.patch(
        "/groups/{name}",
        dependencies=admin,
        openapi_extra=body_of(GroupChange),
        response_model=GroupAnswer,
        response_model_exclude_unset=True,
    )
    def change(name: str, body: GroupChange = Depends(change_body)) -> Any:
        """Change a group. Tasks that are in its queue already stay there. A property with the value "" is removed."""
        return changed(groups.edit(name, body.applied_to))

    @routes.delete("/groups/{name}", status_code=204, dependencies=admin)
    def delete(name: str) -> None:
        """Delete a group that no table, catalog, open task or live optimizer belongs to."""
        groups.delete(name)

    @routes.get("/queues", dependencies=reader, response_model=list[QueueAnswer])
    def all_queues() -> list[Any]:
        """All queues, by name: what waits and runs there, how full they are, and who works on them."""
        found = queues.queues()
        return [plain(found.value(work)) for work in found.all_works]

    @routes.get("/containers", dependencies=admin, response_model=list[ContainerAnswer])
    def all_containers() -> list[Any]:
        """The containers that this server knows, by name. The file on its host describes them, and no request changes it."""
        return [plain(container_value(container)) for container in containers.containers()]

    return routes
