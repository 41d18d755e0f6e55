"""A small S3 in this process that records its requests and can inject faults. It checks no signature and has one bucket."""

from __future__ import annotations

import hashlib
import re
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

BUCKET = "lakehouse"


@dataclass(frozen=True)
class Fault:
    """A failing answer: a status with the service's error code, a closed connection, or a body that ends in its middle."""

    do: Literal["status", "close", "cut"]
    status: int = 500
    code: str = "InternalError"


@dataclass
class ObjectStore:
    """The running store: its objects by key, and its requests as (method, key), oldest first."""

    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    fault: Callable[[str, str], Fault | None] = lambda method, key: None
    endpoint: str = ""
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pages: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """The keys in order when the first page of a listing was asked for, by prefix and delimiter."""
    page_objects: int = 1000
    """One answer to a listing tells of at most this many objects and folders."""

    @property
    def properties(self) -> dict[str, str]:
        """FileIO properties that open the store."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": "access",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }

    def counts(self) -> dict[str, int]:
        """The number of requests since the last call of `counts`, by method."""
        with self.lock:
            counted = Counter(method for method, _ in self.requests)
            self.requests.clear()
        return dict(counted)

    def url(self, key: str) -> str:
        return f"s3://{BUCKET}/{key}"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A running store on a free port of the loopback address."""
    store = ObjectStore()

    class Handler(_Handler):
        held = store

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    held: ObjectStore
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def _any(self) -> None:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with self.held.lock:
            self.held.requests.append((self.command, key))
        fault = self.held.fault(self.command, key)
        if fault is not None and fault.do == "close":
            self.close_connection = True
            return
        if fault is not None and fault.do == "status":
            self._answer(fault.status, _error(fault.code))
            return
        status, headers, data = self._served(key, query, body)
        self._answer(status, data, headers, cut=fault is not None)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _any

    def _served(self, key: str, query: dict[str, list[str]], body: bytes) -> tuple[int, dict[str, str], bytes]:
        store = self.held
        if self.command == "GET" and not key:
            return 200, {}, _listing(store, *(query.get(key, [""])[0] for key in ("prefix", "delimiter", "continuation-token")))
        if self.command in ("GET", "HEAD"):
            return self._read(store.objects.get(key))
        if self.command == "DELETE":
            store.objects.pop(key, None)
            return 204, {}, b""
        return self._write(key, query, body)

    def _read(self, data: bytes | None) -> tuple[int, dict[str, str], bytes]:
        if data is None:
            return 404, {}, _error("NoSuchKey")
        headers = {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            return 200, headers, data
        first, last = int(wanted[1] or max(0, len(data) - int(wanted[2]))), len(data) - 1
        if wanted[1] and wanted[2]:
            last = min(int(wanted[2]), last)
        if first >= len(data):
            return 416, {}, _error("InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {first}-{last}/{len(data)}"}, data[first : last + 1]

    def _write(self, key: str, query: dict[str, list[str]], body: bytes) -> tuple[int, dict[str, str], bytes]:
        store = self.held
        if "uploads" in query:
            store.uploads[key] = {}
            return 200, {}, f"<InitiateMultipartUploadResult><UploadId>{escape(key)}</UploadId></InitiateMultipartUploadResult>".encode()
        if "partNumber" in query:
            store.uploads[key][int(query["partNumber"][0])] = body
            return 200, {"ETag": '"1"'}, b""
        if "uploadId" in query:
            store.objects[key] = b"".join(part for _, part in sorted(store.uploads.pop(key).items()))
            return 200, {}, b"<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>"
        if self.command == "POST" and "delete" in query:
            named = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for one in named:
                store.objects.pop(unescape(one), None)
            deleted = "".join(f"<Deleted><Key>{one}</Key></Deleted>" for one in named)
            return 200, {}, f"<DeleteResult>{deleted}</DeleteResult>".encode()
        store.objects[key] = body
        return 200, {"ETag": '"1"'}, b""

    def _answer(self, status: int, data: bytes, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = self.close_connection or cut


def _shown(store: ObjectStore, prefix: str, delimiter: str) -> list[str]:
    """The keys and folders that a listing has, in order."""
    found = set[str]()
    for key in list(store.objects):
        if key.startswith(prefix):
            folder, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            found.add(f"{prefix}{folder}{slash}" if slash else key)
    return sorted(found)


def _told(shown: str, data: bytes | None) -> str:
    """What a listing says of an object, or of a folder, which has no data."""
    if data is None:
        # An object that was deleted after the first page is left out.
        return f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>" if shown.endswith("/") else ""
    return (
        f"<Contents><Key>{escape(shown)}</Key><Size>{len(data)}</Size><ETag>{hashlib.md5(data).hexdigest()}</ETag>"
        "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
    )


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()


def _listing(store: ObjectStore, prefix: str, delimiter: str, token: str) -> bytes:
    if not token or (prefix, delimiter) not in store.pages:
        store.pages[prefix, delimiter] = _shown(store, prefix, delimiter)
    shown = store.pages[prefix, delimiter]
    first = bisect_right(shown, token)
    page = shown[first : first + store.page_objects]
    more = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if first + len(page) < len(shown) else ""
    body = "".join(_told(one, store.objects.get(one)) for one in page)
    cut = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>{more}"
    return f"<ListBucketResult><KeyCount>{len(page)}</KeyCount>{cut}{body}</ListBucketResult>".encode()
