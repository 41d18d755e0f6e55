"""The pages that describe the API: `/docs`, `/redoc` and `/openapi.json`. Their scripts come from this server, never from somewhere else.

Everything is made once: anybody may ask for these pages again and again, without a token.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable
from functools import cache
from hashlib import sha256
from importlib.resources import as_file, files

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import FileResponse

_SCRIPTS = "/docs/scripts"
_FILES = ("swagger-ui-bundle.js", "swagger-ui.css", "redoc.standalone.js", "favicon.png")
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
_A_DAY = {"Cache-Control": "public, max-age=86400"}


def add_docs(app: FastAPI) -> None:
    """Add the pages to an application that has all its other routes."""
    routes = APIRouter(include_in_schema=False)
    place, title = f"{_SCRIPTS}/", f"{app.title}: the HTTP API"
    swagger = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=title,
        swagger_js_url=f"{place}swagger-ui-bundle.js",
        swagger_css_url=f"{place}swagger-ui.css",
        swagger_favicon_url=f"{place}favicon.png",
    )
    redoc = get_redoc_html(
        openapi_url="/openapi.json",
        title=title,
        redoc_js_url=f"{place}redoc.standalone.js",
        redoc_favicon_url=f"{place}favicon.png",
        with_google_fonts=False,
    )
    for path, page in (("/docs", bytes(swagger.body)), ("/redoc", bytes(redoc.body))):
        routes.add_api_route(path, _page(page))

    @cache
    def document() -> bytes:
        return json.dumps(app.openapi(), ensure_ascii=False).encode()

    @routes.get("/openapi.json")
    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    for name in _FILES:
        routes.add_api_route(f"{_SCRIPTS}/{name}", _file(name))
    app.include_router(routes)


def _page(page: bytes) -> Callable[[], Awaitable[Response]]:
    policy = {"Content-Security-Policy": _policy(page)}

    async def answer() -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=policy)

    return answer


def _file(name: str) -> Callable[[], Awaitable[FileResponse]]:
    # The package is installed as files: FileResponse sends them in parts, so that slow clients take no memory.
    with as_file(files("fastapi_offline") / "static" / name) as path:
        kept = path

    async def script() -> FileResponse:
        return FileResponse(kept, headers=_A_DAY)

    return script


def _policy(page: bytes) -> str:
    """What a browser may load for a page: what this server sends, and the scripts that stand in the page."""
    inline = " ".join(f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in _INLINE_SCRIPT.findall(page))
    return (
        f"default-src 'none'; script-src 'self' {inline}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
