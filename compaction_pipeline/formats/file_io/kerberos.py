"""Tickets of Kerberos for one principal: got with its keytab by `kinit`, kept in a file of their own, and renewed before they end.

A ticket can also come as text among the properties of a FileIO, because an optimizer on another host has no keytab.
"""

from __future__ import annotations

import atexit
import base64
import os
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from threading import Lock

_PATIENCE_SECONDS = 60
_AGAIN_SECONDS = 60
_VERSION = b"\x05\x04"


@dataclass(frozen=True)
class Login:
    """Who logs in, and with which files: paths on this host. Without `krb5_conf`, that of the host holds."""

    principal: str
    keytab: str
    krb5_conf: str | None = None


_lock = Lock()
_locks: dict[Login, Lock] = {}
_times: dict[Login, tuple[float, float]] = {}
"""When the tickets of a login are renewed next, and when they end, in seconds since 1970."""
_services: dict[Path, tuple[bytes, str]] = {}
"""By the file with a service's ticket: the tickets that it was got with, and the service's principal."""
_folder: tuple[int, str] | None = None


def ticket_cache(login: Login, now: float | None = None) -> Path:
    """The file with the tickets of a login. They are renewed when half of their life is over.

    Raises PermissionError or TimeoutError when there are none, or when they have ended, and `kinit` fails.
    """
    now = time.time() if now is None else now
    path = Path(_own_folder()) / f"ticket-{sha256(repr(login).encode()).hexdigest()[:24]}"
    with _lock:
        alone = _locks.setdefault(login, Lock())
    with alone:
        renew_at, end = _times.get(login, (0.0, 0.0))
        if not path.exists() or now >= renew_at:
            try:
                _kinit(login, path)
            except OSError:
                if not path.exists() or now >= end:
                    raise
                # The tickets are still good. A KDC that is down for a moment stops nobody.
                _times[login] = now + _AGAIN_SECONDS, end
            else:
                begin, end = lifetime(path.read_bytes())
                _times[login] = begin + (end - begin) / 2, end
    return path


def service_ticket(login: Login, service: str, host: str) -> tuple[Path, str]:
    """A file with a ticket for one service, such as `hive` on a host, and the principal of that service.

    Raises as `ticket_cache` does. A library that is given both needs neither the KDC nor a krb5.conf.
    """
    cache = ticket_cache(login)
    path = cache.with_name(f"{cache.name}-{sha256(f'{service} {host}'.encode()).hexdigest()[:24]}")
    with _lock:
        alone = _locks[login]
    with alone:
        of, principal = _services.get(path, (b"", ""))
        tickets = cache.read_bytes()
        if tickets != of:
            part = Path(written("service", tickets))
            try:
                said = _run(login, ["kvno", "-c", f"FILE:{part}", "-S", service, host])
                os.replace(part, path)
            except BaseException:
                # A service that gives no ticket is asked again and again, and the copy holds the tickets of the login.
                part.unlink(missing_ok=True)
                raise
            principal = said.rsplit(": kvno", 1)[0].strip()
            _services[path] = tickets, principal
    return path, principal


def _kinit(login: Login, path: Path) -> None:
    # The new file replaces the old one as a whole, because somebody may be reading it.
    part = path.with_suffix(".part")
    _run(login, ["kinit", "-k", "-t", login.keytab, "-c", f"FILE:{part}", login.principal])
    os.replace(part, path)


def _run(login: Login, command: list[str]) -> str:
    """What a program of Kerberos prints."""
    environment = {**os.environ, **({"KRB5_CONFIG": login.krb5_conf} if login.krb5_conf else {})}
    program, none = command[0], f"{login.principal} gets no Kerberos ticket"
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise PermissionError(f"{none}: there is no program '{program}'; install krb5-user") from None
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"{none}: the KDC did not answer within {_PATIENCE_SECONDS} s") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"{program} failed"])[-1]
        raise PermissionError(f"{none}: {said}; check 'kerberos.principal', its keytab and krb5.conf")
    return done.stdout


def written(kind: str, data: bytes) -> str:
    """The path of a file with this content, in a folder that only this user may read. It is named by its content."""
    path = Path(_own_folder()) / f"{kind}-{sha256(data).hexdigest()[:24]}"
    if not path.exists():
        descriptor, part = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        os.replace(part, path)
    return str(path)


def as_text(path: Path | str) -> str:
    """The content of a file, as it stands among the properties of a FileIO."""
    return base64.b64encode(Path(path).read_bytes()).decode()


def from_text(kind: str, text: str) -> str:
    """The path of a file with the content that `as_text` gave. Raises ValueError for another text."""
    return written(kind, base64.b64decode(text, validate=True))


def lifetime(cache: bytes) -> tuple[float, float]:
    """When the first ticket of a cache file begins and ends, in seconds since 1970. Raises ValueError for what is no cache of version 4.

    The format is MIT Kerberos's (doc/formats/ccache_file_format).
    """
    if cache[:2] != _VERSION:
        raise ValueError("the ticket cache has another format than version 4")
    try:
        at = 4 + struct.unpack_from(">H", cache, 2)[0]
        at = _after_principal(cache, at)
        while at < len(cache):
            at = _after_principal(cache, at)
            server = at
            at = _after_principal(cache, at)
            size = struct.unpack_from(">HI", cache, at)[1]
            times = at + 6 + size
            _, begin, end, _ = struct.unpack_from(">IIII", cache, times)
            # The cache also holds entries about its configuration, which are no tickets.
            if b"X-CACHECONF:" not in cache[server:at]:
                return float(begin), float(end)
            at = _after_rest(cache, times + 16)
    except struct.error:
        raise ValueError("the ticket cache is cut off") from None
    raise ValueError("the ticket cache holds no ticket")


def _after_principal(cache: bytes, at: int) -> int:
    count = struct.unpack_from(">I", cache, at + 4)[0]
    at += 8
    for _ in range(count + 1):
        at += 4 + int(struct.unpack_from(">I", cache, at)[0])
    return at


def _after_rest(cache: bytes, at: int) -> int:
    at += 5
    for _ in range(2):
        count = struct.unpack_from(">I", cache, at)[0]
        at += 4
        for _ in range(count):
            at += 6 + int(struct.unpack_from(">I", cache, at + 2)[0])
    for _ in range(2):
        at += 4 + int(struct.unpack_from(">I", cache, at)[0])
    return at


def _own_folder() -> str:
    global _folder
    with _lock:
        if _folder is None or _folder[0] != os.getpid():
            _folder = os.getpid(), tempfile.mkdtemp(prefix="compaction-kerberos-")
            atexit.register(_remove_if_own, *_folder)
        return _folder[1]


def _remove_if_own(process: int, folder: str) -> None:
    # A process that was forked ends too, and its parent still needs the folder.
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
