"""Runs the HTTP service until it is told to end."""

from __future__ import annotations

import errno
import ipaddress
import logging
import random
import resource
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from compaction_pipeline.api.app import http_app
from compaction_pipeline.api.callbacks import Receiver
from compaction_pipeline.api.connections import Connections, Network
from compaction_pipeline.api.handshakes import Handshake
from compaction_pipeline.api.patience import Patience
from compaction_pipeline.api.patient_protocol import HeaderDeadline
from compaction_pipeline.api.slow_refusals import Refusals, SlowRefusals
from compaction_pipeline.api.ticking import Telling, center_works, ticking
from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError, ConfigError
from compaction_pipeline.services.dependencies.tell_readiness import TellReadiness
from compaction_pipeline.settings import Settings

log = logging.getLogger(__name__)

_BACKLOG = 512
_SWITCH_SECONDS = 0.001
_MOST_FILES = 65_536
"""A server of many optimizers needs more open connections than a process mostly may have."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the service listens. `tls_cert` and `tls_key` are files in PEM; `behind_proxy` is the address, or the network, from which
    a proxy of yours connects that does TLS."""

    host: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: str | None = None

    @property
    def proxy(self) -> Network | None:
        """Where the proxy's connections come from; None without a proxy. Raises ConfigError."""
        if self.behind_proxy is None:
            return None
        try:
            return ipaddress.ip_network(self.behind_proxy, strict=False)
        except ValueError:
            raise ConfigError(
                f"--behind-proxy is {self.behind_proxy!r} but must be the address from which your proxy connects, for example 10.0.0.7, or "
                "its network, for example 10.0.0.0/24"
            ) from None

    @property
    def url(self) -> str:
        """The URL by which processes of this host reach the service."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"{'https' if self.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{self.port}"


def check_listening(listening: Listening) -> None:
    """Raise ConfigError when secrets would leave this host in the clear, or when the files of TLS cannot be used."""
    if (listening.tls_cert is None) != (listening.tls_key is None):
        raise ConfigError("--tls-cert and --tls-key belong together: give both, or none")
    for option, path in (("--tls-cert", listening.tls_cert), ("--tls-key", listening.tls_key)):
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} is {path}, but there is no such file; give a file in PEM")
    if listening.tls_cert is not None:
        _tls_context(listening)
    proxy = listening.proxy
    if listening.tls_cert is None and proxy is None and not _is_loopback(listening.host):
        raise ConfigError(
            f"--host is {listening.host!r}, which other hosts can reach, and answers hold the credentials of your storage: give --tls-cert "
            "and --tls-key, or --behind-proxy=ADDRESS when a proxy of yours does TLS and connects from this address"
        )


def check_port(listening: Listening) -> None:
    """Raise ConfigError when nobody can listen there, for example because another process does. A server that starts all the same would
    plan tables before it finds out."""
    try:
        places = socket.getaddrinfo(listening.host, listening.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError(f"--host is {listening.host!r}, which has no address ({error.strerror}): give an address of this host") from error
    for family, kind, protocol, _, address in places:
        with socket.socket(family, kind, protocol) as probe:
            # Connections of a server that ended just now do not count. The server itself is as lenient.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise ConfigError(
                        f"--host is {listening.host!r}, which is no address of this host ({error.strerror}): give one that it has, or "
                        "0.0.0.0 for all of them"
                    ) from error
                raise ConfigError(
                    f"--port is {listening.port}, but nobody can listen there on {listening.host} ({error.strerror}): give another --port, "
                    "or end the process that has it"
                ) from error


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, listens: Callable[[], None]) -> None:
        super().__init__(config)
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listens()


def warn_of_unheard(services: Services) -> None:
    """Say that nobody is told of what is scaled."""
    # A server may start before its state database, or without the key of a secret, and this is a warning.
    with suppress(CompactionError):
        if scaled := services.read_scaling.scaled():
            log.warning(
                "nobody will be told of what is scaled in %s: set COMPACTION_NOTICES_FILE to a file with the addresses of administrators",
                ", ".join(scaled),
            )


def serve(services: Services, listening: Listening, *, ticks: bool, listens: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or Ctrl-C. With `ticks`, tables are also refreshed, planned and committed here, and cleaned up. `listens` is
    called when the first request is answered.

    Raises ConfigError.
    """
    check_listening(listening)
    _raise_file_limit()
    # A thread that works on a large body gives way to the event loop after this time. Python's default is 5 ms, many times a request.
    sys.setswitchinterval(_SWITCH_SECONDS)
    services.server_url = listening.url
    receiver = receiver_of(services.settings)
    # A wrong file of addresses ends the start. Later it only delays notices.
    for warning in services.send_notices.make_ready():
        log.warning("%s", warning)
    if not services.send_notices.book().urls:
        warn_of_unheard(services)
    app = http_app(services, _works(services, receiver, tables=ticks))
    server = _Server(server_config(app, listening), listens)
    # After it has ended well, uvicorn sends itself once more the signal that told it to end.
    # It ends the process when it cannot start.
    with suppress(KeyboardInterrupt, SystemExit):
        server.run()
    if not server.started:
        raise ConfigError("the server did not start; its log says why")


def telling(tell: TellReadiness, receiver: Receiver) -> Telling:
    """What tells this receiver."""
    return Telling(partial(tell.tell, receiver.send), partial(tell.tell_reported, receiver.send))


@contextmanager
def _works(services: Services, receiver: Receiver | None, *, tables: bool) -> Iterator[None]:
    tell = telling(services.tell_readiness, receiver) if receiver is not None else None
    start = partial(services.start_jobs.start, receiver.start) if receiver is not None else None
    center = center_works(services.lead_center, services.detect_tables, services.read_lineage.tell, start)
    with ticking(services.run_ticks, services.upkeep_tables, tables=tables, tell=tell, notify=services.send_notices.send_due), center:
        yield


def receiver_of(settings: Settings) -> Receiver | None:
    """The receiver of callbacks; None when the settings name none. Raises ConfigError when the secret is missing or wrong."""
    url, secret = settings.ready_callback_url, settings.ready_callback_secret
    if url is None:
        return None
    if secret is None:
        raise ConfigError(
            "COMPACTION_READY_CALLBACK_URL is set, but COMPACTION_READY_CALLBACK_SECRET is not: set the receiver's secret, too"
        )
    return Receiver(url, secret.get_secret_value())


def server_config(
    app: FastAPI,
    listening: Listening,
    refusals: Refusals | None = None,
    connections: Connections | None = None,
    patience: Patience = Patience(),
) -> uvicorn.Config:
    """How uvicorn serves the application. `refusals` is the level of the server's refusals, and `connections` has its bounds.

    Raises ConfigError when the certificate and its key cannot be used.
    """
    connections = connections or Connections(listening.proxy)
    refusals = refusals or Refusals(time.monotonic, random.random)
    http: Any = partial(HeaderDeadline, connections=connections, refusals=refusals, header_seconds=patience.header_seconds)
    if listening.tls_cert is not None:
        context = _tls_context(listening)
        http = partial(Handshake, http=http, context=context, connections=connections, seconds=patience.handshake_seconds)
    return uvicorn.Config(
        SlowRefusals(app, refusals),
        http=http,
        # uvloop reads from a new connection before a handshake can begin on it (`handshakes.py`).
        loop="asyncio" if listening.tls_cert is not None else "auto",
        # `X-Forwarded-For` is what anybody writes.
        proxy_headers=False,
        # There are no websockets. Without this, an upgrade would leave the protocol that has deadlines.
        ws="none",
        host=listening.host,
        port=listening.port,
        log_config=None,
        access_log=False,
        server_header=False,
        # A waiting poll takes up to half a minute; it is cut off instead.
        timeout_graceful_shutdown=5,
        # So many connections are taken in one go, before anything else is done.
        backlog=_BACKLOG,
    )


def _tls_context(listening: Listening) -> ssl.SSLContext:
    assert listening.tls_cert is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    is_locked = False

    def passphrase() -> str:
        # Without this function, Python would ask the terminal.
        nonlocal is_locked
        is_locked = True
        return ""

    try:
        context.load_cert_chain(listening.tls_cert, listening.tls_key, passphrase)
    except OSError as error:
        if is_locked:
            raise ConfigError(
                f"--tls-key is {listening.tls_key}, which needs a passphrase, and nobody is asked for one: write the key without it "
                f"(`openssl pkey -in {listening.tls_key} -out FILE`) into a file that only this user can read, and give that file"
            ) from error
        raise ConfigError(
            f"--tls-cert is {listening.tls_cert} and --tls-key is {listening.tls_key}, which cannot be used ({error}): "
            "give a certificate and the key that belongs to it, both in PEM"
        ) from error
    return context


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
