"""Clients for HDFS, made from the properties of a PyIceberg FileIO: one process for each set of properties.

PyArrow needs a JVM and Hadoop's native library, and where a path names a host it ignores the user and the ticket. The client is
`hdfs-native`, which takes the user from its process alone. So it has a process of its own (`hdfs_process.py`).
"""

from __future__ import annotations

import errno
import os
import re
import socket
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NoAnswer
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from compaction_pipeline.formats.file_io.kerberos import Login, as_text, from_text, lifetime, ticket_cache

SCHEMES = frozenset({"hdfs", "viewfs"})
HOST, PORT, USER, TICKET = "hdfs.host", "hdfs.port", "hdfs.user", "hdfs.kerberos_ticket"
"""PyIceberg's names. The ticket is the path of a file with Kerberos tickets."""
CONF = "hdfs.conf."
"""What follows is the name of a setting of Hadoop, as in `core-site.xml` and `hdfs-site.xml`."""
PRINCIPAL, KEYTAB, KRB5_CONF = "kerberos.principal", "kerberos.keytab", "kerberos.krb5-conf"
"""Who logs in, and the paths of two files on this host."""
TICKET_TEXT, KRB5_CONF_TEXT = "hdfs.kerberos-credential", "hdfs.krb5-conf-text"
"""The same for a host without these files: the tickets and the krb5.conf themselves, in base64."""
TICKET_END = "hdfs.kerberos-credential-expires-at-ms"

_SILENCE_SECONDS = 300
"""A request that has no answer after this time has failed."""
_CLIENTS_AT_ONCE = 16
_DEFAULT_PORT = "8020"
_LIMITS: Mapping[str, str] = {
    # The library's defaults wait for minutes where nobody listens. The task is tried again anyway.
    "dfs.client.failover.max.attempts": "4",
    "dfs.client.failover.sleep.base.millis": "200",
    "dfs.client.failover.sleep.max.millis": "2000",
    "dfs.client.socket-timeout": "60000",
}
_AUTHENTICATION, _SIMPLE = "hadoop.security.authentication", "simple"
_NO_CONF_FOLDER = os.devnull
"""A folder that has no files. Without one the library would read those of HADOOP_CONF_DIR."""


@dataclass(frozen=True)
class HdfsPlace:
    """A cluster, and as whom it is opened. Equal ones share a client."""

    url: str
    conf: tuple[tuple[str, str], ...]
    """Settings of Hadoop. If there are none of the catalog's own, those of HADOOP_CONF_DIR hold."""
    own_conf: bool
    environment: tuple[tuple[str, str], ...]
    """What the client's process is told of files and users."""
    login: Login | None
    """Who gets tickets by `kinit`; None without Kerberos, and where tickets are given."""


def hdfs_place(properties: Mapping[str, str], scheme: str, authority: str) -> HdfsPlace:
    """The cluster of `scheme://authority`. Raises PermissionError where the properties name a user beside Kerberos."""
    own = {key.removeprefix(CONF): str(value) for key, value in properties.items() if key.startswith(CONF)}
    environment: dict[str, str] = {}
    user, login, ticket = properties.get(USER), login_of(properties), _ticket(properties)
    if login is not None or ticket is not None:
        own.setdefault(_AUTHENTICATION, "kerberos")
    if own.get(_AUTHENTICATION, _SIMPLE).lower() == _SIMPLE:
        login = ticket = None
    elif user:
        raise PermissionError(f"'{USER}' is {user!r}, but Kerberos tells the user; remove it, or remove the Kerberos settings")
    if user:
        environment["HADOOP_USER_NAME"] = str(user)
    if ticket is not None:
        login = None
        environment["KRB5CCNAME"] = f"FILE:{ticket}"
    krb5_conf = _krb5_conf(properties)
    if krb5_conf is not None:
        environment["KRB5_CONFIG"] = krb5_conf
    url = _url(properties, own, scheme, authority)
    return HdfsPlace(url, tuple(sorted(own.items())), bool(own), tuple(sorted(environment.items())), login)


def for_other_hosts(properties: Mapping[str, str], location: str) -> dict[str, str]:
    """The properties by which a worker without the keytab opens the files of a table: tickets of this moment in place of paths.

    Empty without Kerberos, and where the table is not on HDFS. Raises PermissionError when there is no ticket.
    """
    parts = urlsplit(location)
    login = hdfs_place(properties, parts.scheme, parts.netloc).login if parts.scheme in SCHEMES else None
    if login is None:
        return {}
    cache = ticket_cache(login)
    conf = {KRB5_CONF_TEXT: as_text(login.krb5_conf)} if login.krb5_conf else {}
    return {TICKET_TEXT: as_text(cache), TICKET_END: str(int(lifetime(cache.read_bytes())[1] * 1000)), **conf}


def login_of(properties: Mapping[str, str]) -> Login | None:
    """Who gets tickets with a keytab of this host; None where the properties name nobody."""
    principal, keytab = properties.get(PRINCIPAL), properties.get(KEYTAB)
    return Login(str(principal), str(keytab), _krb5_conf(properties)) if principal and keytab else None


def _ticket(properties: Mapping[str, str]) -> str | None:
    text = properties.get(TICKET_TEXT)
    return from_text("ticket", str(text)) if text else properties.get(TICKET)


def _krb5_conf(properties: Mapping[str, str]) -> str | None:
    text = properties.get(KRB5_CONF_TEXT)
    return from_text("krb5.conf", str(text)) if text else properties.get(KRB5_CONF)


def _url(properties: Mapping[str, str], own: Mapping[str, str], scheme: str, authority: str) -> str:
    if authority:
        # A name without a port is that of a service with several name nodes, if the settings know it.
        lone = scheme == "hdfs" and ":" not in authority and own and f"dfs.ha.namenodes.{authority}" not in own
        return f"{scheme}://{authority}:{_DEFAULT_PORT}" if lone else f"{scheme}://{authority}"
    host = properties.get(HOST)
    if host and scheme == "hdfs":
        return f"hdfs://{host}:{properties.get(PORT) or _DEFAULT_PORT}"
    return str(own.get("fs.defaultFS", "hdfs:///"))


class HdfsClient:
    """Sends requests to the process of one client. Threads may share it. Errors are those of `StoredFile`."""

    def __init__(self, place: HdfsPlace) -> None:
        if find_spec("hdfs_native") is None:
            raise ModuleNotFoundError("No module named 'hdfs_native'", name="hdfs_native")
        environment = _environment(place)
        self.place = place
        self._waiting: dict[int, Future[Any]] = {}
        self._last = 0
        self._lock = Lock()
        self._sending = Lock()
        self.alive = True
        ours, theirs = socket.socketpair()
        with theirs:
            program = str(Path(__file__).with_name("hdfs_process.py"))
            self._process = subprocess.Popen(
                [sys.executable, program, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # The library writes a trace for each crash. The answer tells of it.
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        self._socket = ours
        self._connection: Any = Connection(os.dup(ours.fileno()))
        conf = {**_LIMITS, **dict(place.conf)}
        self._connection.send((place.url, conf, _NO_CONF_FOLDER if place.own_conf else None))
        Thread(target=self._receive, name="hdfs answers", daemon=True).start()

    def request(self, name: str, *arguments: Any, location: str) -> Any:
        """The answer to a request of `hdfs_process.Requests` about the file at `location`."""
        if self.place.login is not None:
            # A new connection takes the tickets from the file, so they must not end.
            ticket_cache(self.place.login)
        future: Future[Any] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._waiting[number] = future
        try:
            if not self.alive:
                raise ConnectionResetError(errno.ECONNRESET, "the client's process has ended", location)
            with self._sending:
                self._connection.send((number, name, arguments))
            good, answer = future.result(_SILENCE_SECONDS)
        except NoAnswer:
            raise TimeoutError(errno.ETIMEDOUT, f"HDFS did not answer within {_SILENCE_SECONDS} s ({name})", location) from None
        except (BrokenPipeError, ConnectionResetError, EOFError) as error:
            self.alive = False
            raise ConnectionResetError(errno.ECONNRESET, f"the client's process has ended ({name})", location) from error
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if not good:
            kind, text = answer
            raise in_our_words(kind, text, name, location)
        return answer

    def _receive(self) -> None:
        while True:
            try:
                number, good, found = self._connection.recv()
            except (EOFError, OSError):
                break
            with self._lock:
                future = self._waiting.get(number)
            if future is not None:
                future.set_result((good, found))
        self.alive = False
        self._socket.close()
        self._process.wait()
        with self._lock:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionResetError())

    def end(self, signal: int) -> None:
        """Send the process a signal that ends it. Its requests fail."""
        self._process.send_signal(signal)
        self._process.wait()

    def close(self) -> None:
        """Send no more requests. The process answers those that it has, and ends."""
        self.alive = False
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)


def _environment(place: HdfsPlace) -> dict[str, str]:
    """The environment of the client's process. It has no identity but that of the place, when the place has one."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RUST_BACKTRACE": "0"}
    tickets = {} if place.login is None else {"KRB5CCNAME": f"FILE:{ticket_cache(place.login)}"}
    return {**environment, **tickets, **dict(place.environment)}


_clients: OrderedDict[tuple[int, HdfsPlace], HdfsClient] = OrderedDict()
_clients_lock = Lock()


def hdfs_client(place: HdfsPlace) -> HdfsClient:
    """The client of this place in this process, made when there is none. Raises ModuleNotFoundError if the extra `hdfs` is missing."""
    # A process that was forked must not talk to its parent's client.
    key = (os.getpid(), place)
    with _clients_lock:
        client = _clients.pop(key, None)
        if client is None or not client.alive:
            client = HdfsClient(place)
        _clients[key] = client
        while len(_clients) > _CLIENTS_AT_ONCE:
            (process, _), oldest = _clients.popitem(last=False)
            if process == os.getpid():
                oldest.close()
        return client


_CLASS = re.compile(r'^\w+\("([\w.$]+)", "(.*)"\)$', re.DOTALL)
_DENIED = ("AccessControlException", "AuthorizationException")
_FULL = ("QuotaExceededException",)
_KERBEROS = re.compile(r"GSSAPIError|SASLError|SaslException|NoSASLMechanism|InvalidToken")


def in_our_words(kind: str, text: str, verb: str, location: str) -> OSError:
    """The error for what the library raised: its type's name and its text, which may hold the stack of a Java process."""
    found = _CLASS.match(text)
    java, said = (found[1].rpartition(".")[2], found[2]) if found else ("", text)
    first = re.split(r"\n|\\n", said, maxsplit=1)[0].strip() or kind
    said = f"HDFS: {java}: {first} ({verb})" if java else f"HDFS: {first} ({verb})"
    if java.endswith(_DENIED):
        return PermissionError(errno.EACCES, said, location)
    if java.endswith(_FULL):
        return OSError(errno.EDQUOT, said, location)
    if kind == "FileNotFoundError" and "is not a file" in first:
        return IsADirectoryError(errno.EISDIR, said, location)
    if kind == "FileNotFoundError" or java == "FileNotFoundException":
        return FileNotFoundError(errno.ENOENT, said, location)
    if kind == "FileExistsError":
        return FileExistsError(errno.EEXIST, said, location)
    if kind == "IsADirectoryError":
        return IsADirectoryError(errno.EISDIR, said, location)
    if "listener disconnected" in first:
        # A name node with Kerberos hangs up on a client that comes without.
        return ConnectionResetError(errno.ECONNRESET, f"{said}: the name node hung up; does it want Kerberos?", location)
    if _KERBEROS.search(text):
        return OSError(f"{said}: Unauthenticated: the Kerberos ticket is missing, has expired or is not accepted ({location})")
    return OSError(f"{said} ({location})")
