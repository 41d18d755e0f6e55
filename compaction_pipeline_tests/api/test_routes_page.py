"""`api/ROUTES.md` lists every route of the OpenAPI document, and no other."""

from __future__ import annotations

import re
from importlib.resources import files

from compaction_pipeline_tests.api.served import Served


def test_the_page_lists_every_route_once(served: Served) -> None:
    page = (files("compaction_pipeline") / "api" / "ROUTES.md").read_text()
    listed = re.findall(r"^\| (GET|POST|PUT|PATCH|DELETE) (\S+) \|", page, re.MULTILINE)
    paths = served.client.get("/openapi.json").json()["paths"]
    assert sorted(listed) == sorted((method.upper(), path) for path, methods in paths.items() for method in methods)
