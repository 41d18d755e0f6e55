"""An Iceberg REST catalog in this process, in front of a PyIceberg catalog. Tests decide how it answers a commit.

It answers the requests by which PyIceberg lists, loads, registers and commits tables. `requests` holds every request, and `logins` the
login of each.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import CommitTableRequest

from compaction_pipeline.iceberg.catalogs import Catalog
from compaction_pipeline.iceberg.catalogs.policies import ENDPOINT as POLICIES
from compaction_pipeline.iceberg.catalogs.rest_catalog import _silent_until

Fault = Callable[["Call"], None]
"""A function that answers a request in place of the catalog, by the methods of `Call`."""


class RestServer:
    """The running server. `commits` holds faults for the next commits, one for each. `everything` is a fault for all requests."""

    def __init__(self, backend: Catalog) -> None:
        self.backend = backend
        self.commits: list[Fault | None] = []
        self.loads: list[Fault] = []
        """Faults for the next requests that load a table, one for each."""
        self.lists: list[Fault] = []
        """Faults for the next requests that list the tables of a namespace, one for each."""
        self.lists_of: dict[str, list[Fault]] = {}
        """The same for the tables of one namespace."""
        self.everything: Fault | None = None
        self.requests: list[str] = []
        self.logins: list[str | None] = []
        """The `Authorization` of each request."""
        self.overrides: dict[str, str] = {}
        """The `overrides` of the answer to `GET /v1/config`."""
        self.defaults: dict[str, str] = {}
        """The `defaults` of that answer, over which a client's own properties win."""
        self.table_config: dict[str, str] = {}
        """The `config` in the answer to a request that loads a table."""
        self.config_of: dict[str, dict[str, str]] = {}
        """What is added to it for some tables, by name."""
        self.policies: Fault | None = None
        """Answers requests for the policies of a table. With it, the answer to `GET /v1/config` names the endpoint of Polaris."""
        self.ended = threading.Event()
        server = self

        class Handler(_Handler):
            rest = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def count(self, request: str) -> int:
        """The number of requests whose "METHOD path" begins with this text."""
        return sum(one.startswith(request) for one in self.requests)

    def close(self) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()


@contextmanager
def rest_server(backend: Catalog) -> Iterator[RestServer]:
    server = RestServer(backend)
    # An earlier test's server may have had the same port, and have been silent.
    _silent_until.pop(urlsplit(server.uri).netloc, None)
    try:
        yield server
    finally:
        server.close()


class Call:
    """One request. `carry_out` does what it asks for, `answer` answers it, and `hang` leaves it unanswered."""

    def __init__(self, handler: _Handler, body: bytes) -> None:
        self._handler = handler
        self.body = body
        self.path = handler.path
        self.headers = handler.headers

    def carry_out(self) -> dict[str, Any]:
        request = CommitTableRequest.model_validate_json(self.body)
        backend = self._handler.rest.backend
        table = backend.load_table((*request.identifier.namespace.root, request.identifier.name))
        done = backend.commit_table(table, request.requirements, request.updates)
        return {"metadata-location": done.metadata_location, "metadata": json.loads(done.metadata.model_dump_json())}

    def answer(self, status: int, value: Any = None, headers: dict[str, str] | None = None, cut: bool = False) -> None:
        # An answer that nothing has changed has no body.
        body = b"" if status == 304 else json.dumps(value if value is not None else error(status)).encode()
        self._handler.send_response(status)
        for name, text in {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}.items():
            self._handler.send_header(name, text)
        self._handler.end_headers()
        self._handler.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self._handler.close_connection = True

    def answer_page(self, status: int, text: str) -> None:
        """Answer with an HTML page, as a proxy or a login server does."""
        body = text.encode()
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", "text/html")
        self._handler.send_header("Content-Length", str(len(body)))
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def hang(self) -> None:
        self._handler.rest.ended.wait(120)
        self._handler.close_connection = True

    def reset(self) -> None:
        self._handler.close_connection = True


def error(status: int) -> dict[str, Any]:
    return {"error": {"message": f"the test says {status}", "type": "FaultException", "code": status}}


def status(code: int) -> Fault:
    """A fault that answers with this status and does nothing."""
    return lambda call: call.answer(code)


def no_tables(call: Call) -> None:
    """A fault that answers that a namespace has no table."""
    call.answer(200, {"identifiers": []})


def done_but(code: int) -> Fault:
    """A fault that carries the commit out, and then answers with this status."""

    def fault(call: Call) -> None:
        call.carry_out()
        call.answer(code)

    return fault


_ENDPOINTS = [
    "GET /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
]


class _Handler(BaseHTTPRequestHandler):
    rest: RestServer
    protocol_version = "HTTP/1.1"
    # An answer goes out in two writes. Without this, the second waits 40 ms until the client has confirmed the first.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing, because pytest shows what failed."""

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        call = Call(self, self.rfile.read(length))
        path = self.path.split("?")[0]
        self.rest.requests.append(f"{self.command} {self.path}")
        self.rest.logins.append(self.headers.get("Authorization"))
        if self.rest.everything is not None:
            self.rest.everything(call)
            return
        prefix = self.rest.overrides.get("prefix")
        if prefix and path.startswith(f"/v1/{prefix}/"):
            path = path.replace(f"/{prefix}", "", 1)
        parts = path.strip("/").split("/")
        if path == "/v1/config":
            endpoints = {"endpoints": [*_ENDPOINTS, str(POLICIES)]} if self.rest.policies is not None else {}
            call.answer(200, {"defaults": self.rest.defaults, "overrides": self.rest.overrides, **endpoints})
        elif parts[-1] == "applicable-policies" and self.rest.policies is not None:
            self.rest.policies(call)
        elif path == "/v1/oauth/tokens":
            call.answer(200, {"access_token": "token", "token_type": "bearer"})
        elif parts[:2] == ["v1", "namespaces"] and len(parts) == 2:
            top = [] if "parent=" in self.path else [list(one) for one in self.rest.backend.list_namespaces()]
            call.answer(200, {"namespaces": top})
        elif parts[:2] == ["v1", "namespaces"] and len(parts) == 3:
            call.answer(200, {"namespace": [parts[2]], "properties": self.rest.backend.load_namespace_properties(parts[2])})
        elif parts[3:] == ["register"]:
            self._register(call, parts[2], json.loads(call.body))
        elif len(parts) == 4 and (faults := self.rest.lists_of.get(parts[2]) or self.rest.lists):
            faults.pop(0)(call)
        elif len(parts) == 4:
            tables = self.rest.backend.list_tables(parts[2])
            call.answer(200, {"identifiers": [{"namespace": list(one[:-1]), "name": one[-1]} for one in tables]})
        elif self.command == "POST":
            self._commit(call)
        else:
            self._load(call, (parts[2], parts[4]))

    def _register(self, call: Call, namespace: str, asked: dict[str, str]) -> None:
        self.rest.backend.register_table((namespace, asked["name"]), asked["metadata-location"])
        self._load(call, (namespace, asked["name"]))

    def _load(self, call: Call, identifier: tuple[str, str]) -> None:
        if self.rest.loads:
            self.rest.loads.pop(0)(call)
            return
        try:
            table = self.rest.backend.load_table(identifier)
        except NoSuchTableError:
            call.answer(404)
            return
        metadata = json.loads(table.metadata.model_dump_json())
        config = {**self.rest.table_config, **self.rest.config_of.get(identifier[-1], {})}
        call.answer(200, {"metadata-location": table.metadata_location, "metadata": metadata, "config": config})

    def _commit(self, call: Call) -> None:
        fault = self.rest.commits.pop(0) if self.rest.commits else None
        if fault is not None:
            fault(call)
            return
        try:
            call.answer(200, call.carry_out())
        except CommitFailedException:
            call.answer(409)
