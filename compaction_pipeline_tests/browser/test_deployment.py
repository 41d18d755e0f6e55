"""The deployment of the browser tests talks only to its own server, also when another process takes its port."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compaction_pipeline.demo.processes import Processes
from compaction_pipeline_tests.browser.deployment import Deployment
from compaction_pipeline_tests.ports import free_port

pytestmark = pytest.mark.browser


class OfAnother(BaseHTTPRequestHandler):
    """Answers as the webserver of another instance."""

    def do_POST(self) -> None:
        body = b'{"data": {"instance": {"info": "storage: /elsewhere"}, "workspaceOrError": {"locationEntries": [1]}}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def taken_port() -> Iterator[int]:
    """A port on which another server answers."""
    with ThreadingHTTPServer(("127.0.0.1", 0), OfAnother) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_a_port_that_another_server_took_is_left_to_it(tmp_path: Path) -> None:
    with taken_port() as taken, Processes() as processes:
        ports = iter([taken])
        made = Deployment(tmp_path)
        made.start(processes, lambda: next(ports, None) or free_port())
        assert not made.url.endswith(f":{taken}")
        assert str(tmp_path) in made.query("{ instance { info } }")["instance"]["info"]
