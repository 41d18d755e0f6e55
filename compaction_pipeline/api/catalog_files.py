"""Routes of the files of Hadoop and Kerberos that catalogs name. Their contents are never given out."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, ConfigDict, Field

from compaction_pipeline.api.bodies import Bodies, body_of
from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access import body_bounds
from compaction_pipeline.core.catalogs.site_files import SiteFile
from compaction_pipeline.services.tables.site_files import SiteFiles

_Id = Annotated[str, Path(max_length=100, description="The id of the file.")]


class CatalogFileBody(BaseModel):
    """A file of at most 1 MiB."""

    model_config = ConfigDict(extra="forbid")

    kind: str = Field(max_length=100, description="core-site, hdfs-site, hive-site, krb5-conf or keytab.")
    content: str = Field(description="The bytes of the file, in base64.", repr=False)


class CatalogFileAnswer(BaseModel):
    """What is told of a stored file. A catalog names it by `reference`, as the value of a property."""

    file: str
    kind: str
    size_bytes: int
    added_at: datetime
    reference: str


def catalog_file_routes(files: SiteFiles, guard: Guard, bodies: Bodies) -> APIRouter:
    """The routes below `/api/v1` about files of catalogs."""
    routes = APIRouter(tags=["catalogs"], responses=ANSWERS)
    needs_admin = guard.needs()
    admin = [Depends(needs_admin)]
    file_body = bodies.of(CatalogFileBody, needs_admin, body_bounds.SITE_FILE)

    @routes.get("/catalog-files", dependencies=admin)
    def all_files() -> list[CatalogFileAnswer]:
        """All stored files, by id, without their contents."""
        return [_answer(file) for file in files.files()]

    @routes.post("/catalog-files", status_code=201, dependencies=admin, openapi_extra=body_of(CatalogFileBody))
    def add_file(body: CatalogFileBody = Depends(file_body)) -> CatalogFileAnswer:
        """Store a file. The same content of the same kind has the same id, however often it is sent."""
        return _answer(files.add_encoded(body.kind, body.content))

    @routes.delete("/catalog-files/{file}", status_code=204, dependencies=admin)
    def remove_file(file: _Id) -> None:
        """Forget a file. It is refused while a catalog names it."""
        files.remove(file)

    return routes


def _answer(file: SiteFile) -> CatalogFileAnswer:
    return CatalogFileAnswer(
        file=file.id, kind=file.kind.value, size_bytes=file.size_bytes, added_at=file.added_at, reference=file.reference
    )
