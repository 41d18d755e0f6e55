"""The route that lists the files of a node."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel

from compaction_pipeline.api.problems import ANSWERS
from compaction_pipeline.api.security import Guard
from compaction_pipeline.core.access.token import Role
from compaction_pipeline.core.errors import NotFoundError
from compaction_pipeline.core.insight.listed_files import ListedFile, Store
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.services.insight.read_files import ReadFiles
from compaction_pipeline.services.insight.read_tables import ReadTables

MOST_FILES = 10_000
_READS_AT_ONCE = 2
"""So many nodes are listed at a time. Both stores of a keyed table are read for it, and that must not keep heartbeats waiting."""


class HiddenRows(BaseModel):
    """Where a delete file of a change store may hide rows: in how many files, how many rows these have, and the paths of the first 20."""

    files: int
    rows: int
    paths: list[str]


class NodeFile(BaseModel):
    """A live file of a node.

    `holds` is rows, inserts, deletes, position deletes or equality deletes. `transaction`, `merged` and `hides` are those of files of a
    keyed table. Readers skip a merged file, because its rows are in the base store already.
    """

    path: str
    store: Store
    holds: str
    size_bytes: int
    rows: int
    sequence_number: int
    transaction: int | None
    merged: bool
    hides: HiddenRows | None


class NodeFiles(BaseModel):
    """The first files of a node, and how many it has in all."""

    table: str
    node: str
    total: int
    files: list[NodeFile]


def file_routes(tables: ReadTables, files: ReadFiles, guard: Guard) -> APIRouter:
    """The route below `/api/v1` that lists the files of a node."""
    routes = APIRouter(tags=["insight"], responses=ANSWERS, dependencies=[Depends(guard.needs(Role.READER))])
    limiter = CapacityLimiter(_READS_AT_ONCE)

    @routes.get("/tables/{table}/nodes/{node:path}/files")
    async def files_of_node(
        table: Annotated[str, Path(max_length=2_000)],
        node: Annotated[str, Path(max_length=2_000)],
        limit: Annotated[int, Query(ge=1, le=MOST_FILES)] = 1_000,
    ) -> NodeFiles:
        """The live files of a node, which is named by its key. Of a keyed table: the base and change files, read from both stores now."""
        return await to_thread.run_sync(_files_of_node, tables, files, TableIdentifier.parse(table), node, limit, limiter=limiter)

    return routes


def _files_of_node(tables: ReadTables, files: ReadFiles, table: TableIdentifier, node: str, limit: int) -> NodeFiles:
    known = tables.nodes(table)
    if node not in known:
        raise NotFoundError(
            f"table {table} has no node {node!r} that its last refresh found; `compaction-pipeline table show {table}` lists its nodes"
        )
    found = files.read(table, known[node])
    return NodeFiles(table=str(table), node=node, total=len(found), files=[_file(each) for each in found[:limit]])


def _file(each: ListedFile) -> NodeFile:
    return NodeFile(
        path=each.file.path,
        store=each.store,
        holds=each.kind,
        size_bytes=each.file.file_size_bytes,
        rows=each.file.record_count,
        sequence_number=each.file.data_sequence_number,
        transaction=each.transaction,
        merged=each.merged,
        hides=HiddenRows(**asdict(each.hides)) if each.hides is not None else None,
    )
