"""A light Iceberg REST catalog of many tables without snapshots, in a process of its own, behind the fault proxy.

    with light_rest(namespaces=100, tables=100) as lake:
        ...

It answers what PyIceberg asks to list namespaces and tables and to load a table, with ETags, as the specification of the REST catalog says
it. The process is controlled by lines of JSON on its standard input, each answered by one line.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_FIELDS = 12


@dataclass
class LightRest:
    """The running catalog, asked through the proxy at `uri`."""

    process: subprocess.Popen[str]
    uri: str

    def tell(self, **command: Any) -> Any:
        """Send a command, and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{json.dumps(command)}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def latency(self, seconds: float) -> None:
        """Let the proxy delay each request."""
        self.tell(do="latency", seconds=seconds)

    def requests(self, pattern: str = "") -> Sequence[str]:
        """The requests since the last call that match, each with the status of its answer before it."""
        found: list[str] = self.tell(do="requests", pattern=pattern)
        return found

    def fault(self, pattern: str, status: int) -> None:
        """Answer requests that match with this status from now on."""
        self.tell(do="fault", pattern=pattern, status=status)

    def end_faults(self) -> None:
        """Answer all requests again."""
        self.tell(do="end_faults")

    def show(self, namespace: str, tables: int) -> None:
        """List only so many tables of a namespace; the others do not exist."""
        self.tell(do="show", namespace=namespace, tables=tables)

    def move(self, namespace: str, table: str) -> None:
        """Let a table have newer metadata."""
        self.tell(do="move", namespace=namespace, table=table)


@contextmanager
def light_rest(namespaces: int, tables: int) -> Iterator[LightRest]:
    """A catalog with so many namespaces of so many tables each, until the block ends."""
    command = [sys.executable, "-m", "compaction_pipeline_tests.light_rest", str(namespaces), str(tables)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield LightRest(process, f"http://127.0.0.1:{int(process.stdout.readline())}")
    finally:
        process.kill()
        process.wait()


class _Catalog:
    """The tables: how many of each namespace there are, and the version of the metadata of each table."""

    def __init__(self, namespaces: int, tables: int) -> None:
        self.tables = {f"ns{number:03d}": tables for number in range(namespaces)}
        self.versions: dict[tuple[str, str], int] = {}

    def names(self, namespace: str) -> list[str]:
        return [f"t{number:05d}" for number in range(self.tables[namespace])]

    def load(self, namespace: str, table: str) -> tuple[str, str]:
        """The ETag and the answer for a table."""
        version = self.versions.get((namespace, table), 0)
        answer = _METADATA.replace("NAMESPACE", namespace).replace("TABLE", table).replace("VERSION", f"{version:05d}")
        return f'"{version}"', answer.replace("UUID", str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}.{table}")))


def _metadata() -> str:
    fields = [
        {"id": one, "name": f"column_{one}", "type": "long" if one % 2 else "string", "required": False} for one in range(1, _FIELDS + 1)
    ]
    metadata = {
        "format-version": 2,
        "table-uuid": "UUID",
        "location": "file:///light/NAMESPACE/TABLE",
        "last-sequence-number": 0,
        "last-updated-ms": 1_700_000_000_000,
        "last-column-id": _FIELDS,
        "current-schema-id": 0,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": [{"source-id": 1, "field-id": 1000, "name": "b", "transform": "bucket[4]"}]}],
        "last-partition-id": 1000,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"write.format.default": "parquet", "version": "VERSION"},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }
    location = "file:///light/NAMESPACE/TABLE/metadata/VERSION-light.metadata.json"
    return json.dumps({"metadata-location": location, "metadata": metadata, "config": {}})


_METADATA = _metadata()


def _handler(catalog: _Catalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *arguments: object) -> None:
            """Log nothing."""

        def answer(self, status: int, body: str = "", etag: str | None = None) -> None:
            content = body.encode()
            head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n"
            self.wfile.write(head.encode() + (f"ETag: {etag}\r\n" if etag else "").encode() + b"\r\n" + content)

        def missing(self, kind: str) -> None:
            self.answer(404, json.dumps({"error": {"message": "none", "type": kind, "code": 404}}))

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            parts = url.path.strip("/").split("/")[1:]
            if parts == ["config"]:
                self.answer(200, json.dumps({"defaults": {}, "overrides": {}}))
            elif parts == ["namespaces"]:
                below = "parent" in parse_qs(url.query)
                self.answer(200, json.dumps({"namespaces": [] if below else [[one] for one in catalog.tables]}))
            elif len(parts) == 3:
                identifiers = [{"namespace": [parts[1]], "name": name} for name in catalog.names(parts[1])]
                self.answer(200, json.dumps({"identifiers": identifiers}))
            elif int(parts[3][1:]) >= catalog.tables[parts[1]]:
                self.missing("NoSuchTableException")
            else:
                etag, body = catalog.load(parts[1], parts[3])
                if self.headers.get("If-None-Match") == etag:
                    self.answer(304, etag=etag)
                else:
                    self.answer(200, body, etag)

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def _serve(namespaces: int, tables: int) -> None:
    from compaction_pipeline_tests.real_services.fault_proxy import Status, fault_proxy

    catalog = _Catalog(namespaces, tables)
    server = _Server(("127.0.0.1", 0), _handler(catalog))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with fault_proxy(server.server_address[1]) as proxy:
        _say(proxy.port)
        for line in sys.stdin:
            command = json.loads(line)
            answer: Any = None
            if command["do"] == "latency":
                proxy.latency_seconds = command["seconds"]
            elif command["do"] == "requests":
                answer = [f"{one.status} {one}" for one in proxy.requests() if re.search(command["pattern"], str(one))]
                proxy.forget()
            elif command["do"] == "fault":
                proxy.add(command["pattern"], Status(command["status"], "{}", "application/json"))
            elif command["do"] == "end_faults":
                proxy.take_away()
            elif command["do"] == "show":
                catalog.tables[command["namespace"]] = command["tables"]
            elif command["do"] == "move":
                key = (command["namespace"], command["table"])
                catalog.versions[key] = catalog.versions.get(key, 0) + 1
            _say(answer)


def _say(answer: Any) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
