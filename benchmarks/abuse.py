"""Measures what honest optimizers feel while somebody abuses the HTTP service.

    python benchmarks/abuse.py --seconds 4                  # a first look
    python benchmarks/abuse.py                              # the lengths that the goals are about
    python benchmarks/abuse.py --only "wrong tokens"        # one attack

It starts a `serve` of its own on loopback, with SQLite. Honest optimizers poll an empty queue, and a load balancer asks for the health of
the server on a new connection each time. A second process attacks that server alone, for so many seconds and from so many connections.
Before each attack the same is measured without one. Attackers mostly have a machine of their own. This one would take the CPU of those
whom it attacks, so it has a lower priority (`--nice`).

Goals, with each attack going on: an honest poll's p99 ≤ 3 times its quiet one, the server's memory ≤ 100 MB above its quiet one, and no
answer of 5xx, and no lost connection, to anybody but the attacker. The last line is `ratio <the worst p99 beside its quiet one>`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import requests
from measure import cpu_seconds, load_average, positive, rss_bytes

from compaction_pipeline.core.access.body_bounds import COMMIT_REPORT, REPORT
from compaction_pipeline.core.queue.merge_version import MERGE_VERSION
from compaction_pipeline.demo.processes import Processes, stop_on_signals

OPTIMIZERS = 4
POLLS_A_SECOND = 20
"""Each honest optimizer polls so often."""
HALF_OPEN = 2_100
WRONG_A_SECOND = 1_000
QUIET_SECONDS = 5
PATIENCE_SECONDS = 60
MB = 1_000_000


@dataclass(frozen=True)
class Target:
    """The server that is attacked, and the tokens that the attacker has."""

    port: int
    optimizer: str
    writer: str


# ---- the attacker ----------------------------------------------------------------------------------------------------


class _Count:
    requests = 0


async def _ask(target: Target, sent: bytes, *, body: bytes = b"") -> None:
    """Send a request on a connection of its own, and read what the server says."""
    _Count.requests += 1
    with suppress(OSError, asyncio.TimeoutError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
        try:
            writer.write(sent)
            for start in range(0, len(body), 65_536):
                writer.write(body[start : start + 65_536])
                await asyncio.wait_for(writer.drain(), 5)
            await asyncio.wait_for(reader.read(65_536), 30)
        finally:
            writer.close()


def _head(method: str, path: str, token: str | None = None, **headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", "Connection: close"]
    lines += [f"Authorization: Bearer {token}"] if token else []
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _in_parallel(count: int, once: Callable[[], Awaitable[None]]) -> None:
    async def again() -> None:
        while True:
            await once()
            await asyncio.sleep(0)

    await asyncio.gather(*(again() for _ in range(count)))


async def _unknown_keys(target: Target) -> None:
    """Reports of unknown keys, as large as they may be, from the holder of a valid token."""
    keys = {f"k{number}": number for number in range(REPORT.most_marks // 2 - 10)}
    body = json.dumps(keys, separators=(",", ":")).encode()
    head = _head("POST", "/api/v1/attempts/x/complete", target.optimizer, Content_Length=str(len(body)))
    await _in_parallel(8, lambda: _ask(target, head, body=body))


async def _large_commit_reports(target: Target) -> None:
    """Reports of commits with as many wrong values as fit, from the holder of a valid token."""
    body = json.dumps({"snapshot_id": 1, "added": [{"x": 1}] * (COMMIT_REPORT.most_marks // 4)}).encode()
    head = _head("POST", "/api/v1/tables/a.b.c/commits", target.writer, Content_Length=str(len(body)))
    await _in_parallel(8, lambda: _ask(target, head, body=body))


async def _anonymous_bodies(target: Target) -> None:
    """100 bodies of 7.9 MB at a time without a token."""
    body = b"[" + b"1," * 3_950_000 + b"1]"
    head = _head("POST", "/api/v1/optimizers", Content_Length=str(len(body)))
    await _in_parallel(100, lambda: _ask(target, head, body=body))


async def _half_open(target: Target) -> None:
    """Connections that send a part of their headers. Those that are closed are opened again."""
    held: list[asyncio.StreamWriter] = []
    while True:
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", target.port)
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: x\r\nX-Slow: ")
            held.append(writer)
            _Count.requests += 1
        if len(held) >= HALF_OPEN:
            for writer in held:
                writer.close()
            held.clear()
            await asyncio.sleep(0.5)


async def _at_a_pace(target: Target, a_second: int, token: Callable[[], str]) -> None:
    """Requests with tokens that are wrong, on connections that stay open where the server lets them."""
    each = 20

    async def again(number: int) -> None:
        await asyncio.sleep(number / a_second)
        while True:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
                while True:
                    due = time.monotonic() + each / a_second
                    writer.write(f"GET /api/v1/groups HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token()}\r\n\r\n".encode())
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                    await reader.readexactly(length)
                    _Count.requests += 1
                    await asyncio.sleep(max(0.0, due - time.monotonic()))

    await asyncio.gather(*(again(number) for number in range(each)))


async def _wrong_tokens(target: Target) -> None:
    """1,000 requests a second with ten tokens that are wrong."""
    wrong = [f"{secrets.token_hex(8)}.{secrets.token_hex(32)}" for _ in range(10)]
    await _at_a_pace(target, WRONG_A_SECOND, lambda: secrets.choice(wrong))


async def _always_another_wrong_token(target: Target) -> None:
    """1,000 requests a second with tokens of which each is another one."""
    await _at_a_pace(target, WRONG_A_SECOND, lambda: f"{secrets.token_hex(8)}.{secrets.token_hex(32)}")


async def _large_headers(target: Target) -> None:
    """Complete headers of 20 kB."""
    head = _head("GET", "/health/live", X_Large="a" * 20_000)
    await _in_parallel(4, lambda: _ask(target, head))


async def _tiny_chunks(target: Target) -> None:
    """A body in chunks of one byte, from the holder of a valid token."""
    head = _head("POST", "/api/v1/optimizers", target.optimizer, Transfer_Encoding="chunked")
    await _in_parallel(4, lambda: _ask(target, head, body=b"1\r\n \r\n" * 100_000))


ATTACKS: Mapping[str, Callable[[Target], Coroutine[Any, Any, None]]] = {
    "unknown keys": _unknown_keys,
    "large commit reports": _large_commit_reports,
    "anonymous bodies": _anonymous_bodies,
    "half-open connections": _half_open,
    "wrong tokens": _wrong_tokens,
    "always another wrong token": _always_another_wrong_token,
    "large headers": _large_headers,
    "tiny chunks": _tiny_chunks,
}


def _attack(name: str, target: Target, seconds: float, nice: int, made: Any) -> None:
    def end() -> None:
        time.sleep(seconds)
        made.value = _Count.requests / seconds
        # An attack has hundreds of tasks that nobody could end one by one.
        os._exit(0)

    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    os.nice(nice)
    threading.Thread(target=end, daemon=True).start()
    asyncio.run(ATTACKS[name](target))


# ---- the honest ------------------------------------------------------------------------------------------------------


@dataclass
class Felt:
    """What the honest felt: how long their polls took, in seconds, what went wrong, and the server's memory at its highest."""

    polls: list[float] = field(default_factory=list)
    healths: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    rss_bytes: int = 0
    cpu_ratio: float = 0

    @property
    def p50(self) -> float:
        return statistics.median(self.polls)

    @property
    def p99(self) -> float:
        return sorted(self.polls)[int(len(self.polls) * 0.99)]


class Server:
    """A `serve` of its own, with honest optimizers."""

    def __init__(self, processes: Processes, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._home = home
        self._url = f"http://127.0.0.1:{self.port}"
        environment = {**os.environ, "COMPACTION_HOME": str(home), "COMPACTION_STATE_URL": f"sqlite:///{home / 'state.db'}"}
        self._command = str(Path(sys.executable).with_name("compaction-pipeline"))
        self._environment = environment
        serve = [self._command, "serve", "--port", str(self.port), "--no-ticks"]
        self._process = processes.start("server", serve, environment, home, home / "log")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            processes.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"the server did not answer within {PATIENCE_SECONDS} s")
            time.sleep(0.2)
        self._optimizers = [self._registered(number) for number in range(OPTIMIZERS)]

    def target(self) -> Target:
        return Target(self.port, self._registered(99)[1], self._token("writer"))

    def felt(self, seconds: float) -> Felt:
        """Poll for so long."""
        felt, stopped = Felt(), threading.Event()
        threads = [threading.Thread(target=self._poll, args=(*each, felt, stopped)) for each in self._optimizers]
        threads += [threading.Thread(target=self._ask_for_health, args=(felt, stopped))]
        began, cpu = time.monotonic(), cpu_seconds(self._process.pid)
        for thread in threads:
            thread.start()
        deadline = began + seconds
        while time.monotonic() < deadline:
            time.sleep(0.1)
            felt.rss_bytes = max(felt.rss_bytes, rss_bytes(self._process.pid))
        felt.cpu_ratio = (cpu_seconds(self._process.pid) - cpu) / (time.monotonic() - began)
        stopped.set()
        for thread in threads:
            thread.join()
        return felt

    def _poll(self, optimizer_id: str, token: str, felt: Felt, stopped: threading.Event) -> None:
        session = requests.Session()
        session.headers["Authorization"] = f"Bearer {token}"
        # An optimizer that is silent for a minute is lost.
        session.post(f"{self._url}/api/v1/optimizers/{optimizer_id}/touch", json={"running": []}, timeout=60)
        while not stopped.is_set():
            started = time.monotonic()
            try:
                path = f"{self._url}/api/v1/optimizers/{optimizer_id}/poll"
                answer = session.post(path, json={"poll_id": secrets.token_hex(8)}, timeout=60)
                if not answer.ok:
                    felt.problems.append(f"a poll got {answer.status_code}")
            except requests.RequestException as error:
                felt.problems.append(f"a poll got {type(error).__name__}")
            felt.polls.append(time.monotonic() - started)
            stopped.wait(max(0.0, 1 / POLLS_A_SECOND - (time.monotonic() - started)))

    def _ask_for_health(self, felt: Felt, stopped: threading.Event) -> None:
        while not stopped.is_set():
            started = time.monotonic()
            for path in ("live", "ready"):
                try:
                    answer = requests.get(f"{self._url}/health/{path}", timeout=60)
                    if not answer.ok:
                        felt.problems.append(f"health got {answer.status_code}")
                except requests.RequestException as error:
                    felt.problems.append(f"health got {type(error).__name__}")
            felt.healths.append(time.monotonic() - started)
            stopped.wait(0.1)

    def _answers(self) -> bool:
        try:
            return (self._home / "optimizer.token").exists() and requests.get(f"{self._url}/health/ready", timeout=5).ok
        except requests.RequestException:
            return False

    def _registered(self, number: int) -> tuple[str, str]:
        """The id and the token of a new optimizer."""
        itself: dict[str, Any] = {"group": "default", "host": "here", "process": str(number), "version": "benchmark", "parallelism": 1}
        token = (self._home / "optimizer.token").read_text().strip()
        answer = requests.post(
            f"{self._url}/api/v1/optimizers",
            json={**itself, "merge_version": MERGE_VERSION},
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )
        answer.raise_for_status()
        return answer.json()["optimizer_id"], answer.json()["token"]

    def _token(self, role: str) -> str:
        import subprocess

        command = [self._command, "token", "add", "--role", role, "--name", "benchmark", "--json"]
        made = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=True)
        text: str = json.loads(made.stdout)["token"]
        return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=positive, default=10, help="how long each attack lasts")
    parser.add_argument("--nice", type=int, default=10, help="by how much the priority of the attacker is lower")
    parser.add_argument("--only", choices=sorted(ATTACKS), help="only this attack")
    arguments = parser.parse_args()
    stop_on_signals()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="abuse-benchmark-") as folder, Processes() as processes:
        server = Server(processes, Path(folder))
        target = server.target()
        server.felt(QUIET_SECONDS / 2)
        for name in [arguments.only] if arguments.only else ATTACKS:
            worst = max(worst, _measured(server, target, name, arguments.seconds, arguments.nice))
    print(f"ratio {worst:.2f}")


def _measured(server: Server, target: Target, name: str, seconds: int, nice: int) -> float:
    """Measure without an attack and with it. Print what was felt, and return how many times as long the slowest polls took."""
    quiet = server.felt(QUIET_SECONDS)
    context = get_context("spawn")
    made = context.Value("d", 0.0)
    attacker = context.Process(target=_attack, args=(name, target, seconds + 5, nice, made), daemon=True)
    attacker.start()
    # The attacker imports this program first.
    time.sleep(3)
    under = server.felt(seconds)
    attacker.join(PATIENCE_SECONDS)
    ratio, more = under.p99 / quiet.p99, (under.rss_bytes - quiet.rss_bytes) / MB
    problems = f"{len(under.problems)} problems ({', '.join(sorted(set(under.problems)))})" if under.problems else "no problem"
    print(
        f"{name}: poll p50 {quiet.p50 * 1000:.1f} → {under.p50 * 1000:.1f} ms, p99 {quiet.p99 * 1000:.1f} → {under.p99 * 1000:.1f} ms "
        f"({ratio:.1f} ×), slowest {max(under.polls) * 1000:.0f} ms; health slowest {max(under.healths) * 1000:.0f} ms; "
        f"{made.value:.0f} attacks a second; the server takes {quiet.cpu_ratio:.2f} → {under.cpu_ratio:.2f} CPU-s a second; "
        f"memory {quiet.rss_bytes / MB:.0f} MB {more:+.0f}; {len(under.polls)} polls, {problems}; {load_average()}",
        flush=True,
    )
    # What the attack left behind ends before the next one begins.
    time.sleep(2)
    return ratio


if __name__ == "__main__":
    main()
