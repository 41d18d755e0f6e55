"""Asks REST catalogs for the policies that count for a table: the PolicyReader port.

Only a catalog is asked whose answer to `GET /v1/config` names the endpoint. Polaris has it beside the protocol of Iceberg, below
`polaris/v1/` and not below `v1/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.catalog.rest import PREFIX, Endpoint, HttpMethod

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.tables.policies import Policy, read_policies
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.iceberg.catalogs.open_catalogs import Catalogs
from compaction_pipeline.iceberg.catalogs.rest_catalog import BoundedRestCatalog
from compaction_pipeline.iceberg.failures import translated

ENDPOINT = Endpoint(http_method=HttpMethod.GET, path="polaris/v1/{prefix}/applicable-policies")
_SEPARATOR = "\x1f"
_MOST_PAGES = 20


class CatalogPolicies:
    """The PolicyReader on PyIceberg's REST catalog."""

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs

    def policies(self, table: TableIdentifier) -> Sequence[Policy] | None:
        catalog = self._catalogs.catalog(table.catalog)
        if not isinstance(catalog, BoundedRestCatalog) or not _has_policies(catalog):
            return None
        with translated(f"the policies of table {table}"):
            pages = self._pages(catalog, table)
        try:
            return read_policies(pages)
        except ValueError as error:
            raise StorageUnavailable(f"the policies of table {table} cannot be read: {error}; correct them in the catalog") from error

    def _pages(self, catalog: BoundedRestCatalog, table: TableIdentifier) -> Sequence[Mapping[str, Any]]:
        asked = {"namespace": _SEPARATOR.join(table.namespace), "target-name": table.name}
        pages: list[Mapping[str, Any]] = []
        token: object = None
        while len(pages) < _MOST_PAGES:
            answer = catalog.asked(_url(catalog), {**asked, "pageToken": str(token)} if token else asked)
            if not isinstance(answer, dict):
                raise StorageUnavailable(f"the policies of table {table} cannot be read: the answer is no object of JSON")
            pages.append(answer)
            token = answer.get("next-page-token")
            if not token:
                return pages
        raise StorageUnavailable(f"the policies of table {table} have more than {_MOST_PAGES} pages; detach some")


def _has_policies(catalog: BoundedRestCatalog) -> bool:
    return any(one.http_method == ENDPOINT.http_method and one.path.lstrip("/") == ENDPOINT.path for one in catalog.endpoints)


def _url(catalog: BoundedRestCatalog) -> str:
    return f"{str(catalog.uri).rstrip('/')}/{ENDPOINT.path.format(prefix=catalog.properties.get(PREFIX, ''))}".replace("/v1//", "/v1/")
