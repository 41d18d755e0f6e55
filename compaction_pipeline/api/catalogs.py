"""Routes of catalogs: what is registered, and how an admin registers, changes, lists and removes one.

A caller may not name what lies on the server (`core/catalogs/over_http.py`). Secrets are masked in every answer.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.catalogs.change import read_change
from compaction_pipeline.core.catalogs.definition import read_definition
from compaction_pipeline.core.catalogs.value import catalog_value
from compaction_pipeline.core.tables.listing import Unseen
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs
from compaction_pipeline.services.tables.manage_catalogs import ManageCatalogs, Tried

_Name = Annotated[str, Path(max_length=200, description="The registered name of the catalog.")]


class CatalogFields(BaseModel):
    """The fields that a new catalog and a change share."""

    model_config = ConfigDict(extra="forbid")

    type: str | None = None
    properties: dict[str, str] = Field(default={}, description="Properties of PyIceberg's catalogs, and table.KEY for all tables.")
    table_properties: dict[str, str] = Field(default={}, description="Properties that the tables inherit, without the prefix table.")
    formats: list[str] | str | None = Field(default=None, description="Which formats are compacted: iceberg, mixed-iceberg.")
    group: str | None = Field(default=None, description="The resource group of tables that name none.")
    database_filter: str | None = Field(default=None, description="A regular expression (RE2) for whole namespaces.")
    table_filter: str | None = Field(default=None, description="A regular expression (RE2) for whole texts namespace.table.")
    authentication: str | None = None
    observe: bool | None = None


class CatalogBody(CatalogFields):
    """A new catalog."""

    name: str = Field(max_length=100)


class CatalogChangeBody(CatalogFields):
    """What is to change. The rest stays. `unset` are keys that the catalog shall not have any more. A key stands in one of both at most."""

    unset: list[str] = []


class CatalogAnswer(BaseModel):
    """A catalog. Secrets are masked. `sources` says who holds each key: component, file, person, or default.

    `unreadable` says why its secrets cannot be decrypted. Then `properties` lacks them, and nobody can open the catalog.
    """

    catalog: str
    observe: bool
    properties: dict[str, str]
    sources: dict[str, str]
    unreadable: str | None


class TriedAnswer(CatalogAnswer):
    """A catalog that was stored after one listing. `tables` are those that its filters leave in, and `left_out` counts the others.

    `warnings` are sentences about properties without an effect, what no commit has shown to work, and another team that is charged.
    """

    tables: list[str]
    left_out: int
    warnings: list[str]


class NotSeen(BaseModel):
    """A sentence about what a listing did not see. `tables` counts the known tables that it did not see, and that stay as they are."""

    catalog: str
    namespace: str
    tables: int
    sentence: str


class ExploredAnswer(BaseModel):
    """What a listing found: tables that are new, that are gone, and that the filters leave out now.

    `others` are tables of other formats, which are left alone, with what each is in words. Only Hive and Glue tell them.
    While `not_seen` is not empty, tables may be missing in all of these.
    """

    appeared: list[str]
    dropped: list[str]
    left_out: list[str]
    others: dict[str, str]
    not_seen: list[NotSeen]


class RemovedAnswer(BaseModel):
    """What was forgotten with a catalog. The tables themselves stay as they are."""

    catalog: str
    tables: int
    open_tasks: int
    records: int


def catalog_routes(manage: ManageCatalogs, explore: ExploreCatalogs, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` about catalogs."""
    routes = APIRouter(tags=["catalogs"], responses=ANSWERS)
    needs_admin = guard.needs()
    reader, admin = [Depends(guard.needs(Role.READER))], [Depends(needs_admin)]
    # One rule book judges the values of every door, their kinds too, so that all problems are in one answer.
    definition_body = bodies.read_by(read_definition, needs_admin, body_bounds.OTHER)
    change_body = bodies.read_by(read_change, needs_admin, body_bounds.OTHER)

    @routes.get("/catalogs", dependencies=reader, response_model=list[CatalogAnswer])
    def all_catalogs() -> list[Any]:
        """All catalogs, by name."""
        return [catalog_value(entry) for entry in explore.entries()]

    @routes.get("/catalogs/{name}", dependencies=reader, response_model=CatalogAnswer)
    def one_catalog(name: _Name) -> Any:
        """One catalog: its properties, and who holds each of them."""
        return catalog_value(manage.entry(name))

    @routes.post(
        "/catalogs",
        status_code=201,
        dependencies=admin,
        openapi_extra=body_of(CatalogBody),
        response_model=TriedAnswer,
    )
    def add(response: Response, body: Any = Depends(definition_body), dry_run: bool = False) -> Any:
        """Register a catalog, after one listing. All that is wrong is told at once, and nothing is stored then.

        With `dry_run` everything is checked and listed, nothing is stored, and the status is 200.
        """
        definition, problems = body
        if dry_run:
            response.status_code = 200
        return _tried(manage.add(definition, problems, over_http=True, dry_run=dry_run))

    @routes.patch("/catalogs/{name}", dependencies=admin, openapi_extra=body_of(CatalogChangeBody), response_model=TriedAnswer)
    def change(name: _Name, body: Any = Depends(change_body), dry_run: bool = False) -> Any:
        """Change a catalog, after one listing with the new properties. Its tables keep their history.

        A key that the file or the component of the deployment holds is refused. So is a new address while a secret would stay. With
        `dry_run` everything is checked and listed, and nothing is stored.
        """
        wanted, problems = body
        return _tried(manage.change(name, wanted, problems, over_http=True, dry_run=dry_run))

    @routes.delete("/catalogs/{name}", dependencies=admin, response_model=RemovedAnswer)
    def remove(name: _Name) -> Any:
        """Forget a catalog, its tables, their tasks and their records. It is refused while tasks of its tables run."""
        gone = manage.remove(name)
        return {"catalog": gone.catalog, "tables": gone.tables, "open_tasks": gone.open_tasks, "records": gone.records}

    @routes.post("/catalogs/{name}/explore", dependencies=admin)
    def explore_now(name: _Name, accept_vanished: bool = False) -> ExploredAnswer:
        """List the tables of a catalog now. A server does it by itself every three minutes.

        With `accept_vanished`, tables that are not listed any more are gone for good. Each of them is still forgotten only when the catalog
        says of it that it does not exist.
        """
        found = explore.explore(name, accept_vanished=accept_vanished)
        appeared, dropped, left_out = ([str(table) for table in each] for each in (found.appeared, found.dropped, found.left_out))
        not_seen = [_not_seen(one) for one in found.unseen]
        return ExploredAnswer(appeared=appeared, dropped=dropped, left_out=left_out, others=dict(found.others), not_seen=not_seen)

    @routes.get("/catalogs-not-seen", dependencies=reader)
    def not_seen() -> list[NotSeen]:
        """What the last listing of each catalog did not see. When it is empty, all namespaces and all known tables were seen."""
        return [_not_seen(one) for one in explore.unseen()]

    return routes


def _not_seen(one: Unseen) -> NotSeen:
    return NotSeen(catalog=one.catalog, namespace=".".join(one.namespace), tables=one.tables, sentence=one.sentence)


def _tried(tried: Tried) -> dict[str, object]:
    return {
        **catalog_value(tried.entry),
        "tables": [str(table) for table in tried.tables],
        "left_out": len(tried.left_out),
        "warnings": tried.warnings,
    }
