"""A `serve` of a benchmark's own, and the receiver of its callbacks in the benchmark's process."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Generic, TypeVar

import requests
from measure import cpu_seconds, rss_bytes

from compaction_pipeline.demo.processes import Processes

K = TypeVar("K", bound=Hashable)
_PATIENCE_SECONDS = 60
_SECRET = "benchmark"
_MB = 1_000_000


class Receiver(Generic[K]):
    """Takes callbacks, and notes when each arrived first (`time.monotonic`)."""

    def __init__(self, key_of: Callable[[Any], K]) -> None:
        """`key_of` says by which key the `data` of a callback is noted."""
        self._key_of = key_of
        self.arrived: dict[K, float] = {}
        self.twice = 0

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its URL."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                at = time.monotonic()
                key = receiver._key_of(json.loads(self.rfile.read(int(self.headers["content-length"])))["data"])
                receiver.twice += key in receiver.arrived
                receiver.arrived.setdefault(key, at)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                return

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}/hook"
            server.shutdown()


class Server:
    """A `serve` of its own, which knows the receiver."""

    def __init__(self, processes: Processes, home: Path, state_url: str, hook: str, *, ticks: bool) -> None:
        home.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        self._command = str(Path(sys.executable).with_name("compaction-pipeline"))
        self.environment = {
            **os.environ,
            "COMPACTION_HOME": str(home),
            "COMPACTION_STATE_URL": state_url,
            "COMPACTION_READY_CALLBACK_URL": hook,
            "COMPACTION_READY_CALLBACK_SECRET": _SECRET,
        }
        self._serve = [self._command, "serve", "--port", self.url.rpartition(":")[2], *([] if ticks else ["--no-ticks"])]
        self._processes, self._home = processes, home

    def start(self) -> None:
        self._process = self._processes.start("server", self._serve, self.environment, self._home, self._home / "log")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self._answers():
            self._processes.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"the server did not answer within {_PATIENCE_SECONDS} s")
            time.sleep(0.2)

    def run(self, *arguments: str) -> str:
        """What a command prints."""
        done = subprocess.run([self._command, *arguments], env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"compaction-pipeline {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def token(self, role: str) -> str:
        return self.run("token", "add", "--role", role, "--name", f"benchmark-{role}").strip()

    def cpu_seconds(self) -> float:
        return cpu_seconds(self._process.pid)

    def memory(self) -> float:
        return rss_bytes(self._process.pid) / _MB

    def cpu_at_rest(self, seconds: float, every: float) -> float:
        """CPU seconds in so many seconds (`every`), while nothing else happens."""
        before, began = self.cpu_seconds(), time.monotonic()
        time.sleep(seconds)
        return (self.cpu_seconds() - before) / ((time.monotonic() - began) / every)

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/health/ready", timeout=5).ok
        except requests.RequestException:
            return False
