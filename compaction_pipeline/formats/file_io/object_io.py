"""A PyIceberg FileIO that needs one request where PyArrow's S3 needs several. Everything else is done by PyArrow.

A whole file is one GET, and so is a part of a file. A file below the part size is one PUT. It sends no HEAD for what is known
already: manifests tell the sizes of files, and no other file can have a name that contains a new UUID. The client repeats requests that
fail for a moment, with growing pauses. When an answer is cut off, it requests the rest.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from compaction_pipeline.formats.file_io.hdfs_files import hdfs_file
from compaction_pipeline.formats.file_io.immutable import immutable_files, is_unique
from compaction_pipeline.formats.file_io.local_files import Tail, plain_path
from compaction_pipeline.formats.file_io.s3_stores import DEFAULT_LIMITS, SCHEMES, S3Bucket, s3_bucket
from compaction_pipeline.formats.file_io.stored_file import StoredFile, StoredOutput

if TYPE_CHECKING:
    from obstore import ObjectMeta

PART_BYTES = 8 * 1024 * 1024
"""A file up to this size is written by one PUT. A larger one is sent in parts of this size, two at a time."""
_PARTS_AT_ONCE = 2
_READS_AT_ONCE = 8
_DELETES_AT_ONCE = 8
_OBJECTS_AT_ONCE = 1000

__all__ = ["PART_BYTES", "ObjectFile", "ObjectFileIO", "ObjectOutput", "immutable_files", "listed_objects"]


class ObjectFileIO(PyArrowFileIO):
    """PyArrow's FileIO with fewer requests on S3, with time limits where none are set, and with HDFS without a JVM."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__({**DEFAULT_LIMITS, **properties})

    def object(self, location: str) -> StoredFile | None:
        """The file of S3 or HDFS that we access ourselves. None if PyArrow has to do it."""
        on_hdfs = hdfs_file(self.properties, location)
        return on_hdfs if on_hdfs is not None else self._of_s3(location)

    def _of_s3(self, location: str, known: dict[str, S3Bucket | None] | None = None) -> ObjectFile | None:
        parts = urlsplit(location)
        if parts.scheme not in SCHEMES or "?" in location or "#" in location:
            return None
        key = parts.path.lstrip("/")
        if not key or any(step in ("", ".", "..") for step in key.split("/")):
            return None
        known = {} if known is None else known
        if parts.netloc not in known:
            known[parts.netloc] = s3_bucket(self.properties, parts.netloc)
        bucket = known[parts.netloc]
        return None if bucket is None else ObjectFile(location, bucket, key)

    # These two return Any, because PyArrow's own methods declare PyArrow's type of file.
    def new_input(self, location: str) -> Any:
        found = self.object(location)
        return super().new_input(location) if found is None else found

    def new_output(self, location: str) -> Any:
        found = self.object(location)
        return super().new_output(location) if found is None else found

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        here = self._here(path)
        if here is not None:
            os.unlink(here)
            return
        immutable_files.forget(path)
        found = self.object(path)
        if found is None:
            super().delete(path)
        else:
            found.delete()

    def _here(self, path: str) -> str | None:
        """The path on this host of a file that needs no PyArrow to be deleted. PyIceberg opens a path without a scheme where
        'DEFAULT_SCHEME' says, and that may be another store."""
        return None if path.startswith("/") and self.properties.get("DEFAULT_SCHEME", "file") != "file" else plain_path(path)

    def delete_many(self, locations: Sequence[str]) -> dict[str, OSError]:
        """Delete these files, those of one bucket by few requests. Return the error of each that is still there, or may be.

        A service does not tell which objects were absent. Where it does not know the request, the files are deleted one by one.
        """
        immutable_files.forget(*locations)
        buckets: dict[S3Bucket, list[ObjectFile]] = {}
        # To find the bucket of a name takes longer than to delete one of many objects.
        known: dict[str, S3Bucket | None] = {}
        for file in (self._of_s3(location, known) for location in locations if self._here(location) is None):
            if file is not None:
                buckets.setdefault(file.bucket, []).append(file)
        done = {file.location for bucket, files in buckets.items() if _deleted_at_once(bucket, files) for file in files}
        rest = [location for location in locations if location not in done]
        # A thread gets its share at once: to hand over each path alone takes longer than a file system needs to delete the file.
        shares = [share for share in (rest[first::_DELETES_AT_ONCE] for first in range(_DELETES_AT_ONCE)) if share]
        with ThreadPoolExecutor(_DELETES_AT_ONCE, thread_name_prefix="deletes") as pool:
            errors = dict(chain.from_iterable(pool.map(self._failures_of_deletes, shares)))
        return {location: errors[location] for location in rest if location in errors}

    def _failures_of_deletes(self, locations: Sequence[str]) -> Sequence[tuple[str, OSError]]:
        errors = ((location, self._failure_of_delete(location)) for location in locations)
        return [(location, error) for location, error in errors if error is not None]

    def _failure_of_delete(self, location: str) -> OSError | None:
        try:
            self.delete(location)
        except FileNotFoundError:
            return None
        except OSError as error:
            return error
        except Exception as error:  # The client raises TypeError for some keys.
            return OSError(f"{type(error).__name__}: {error} (DELETE {location})")
        return None


def _deleted_at_once(bucket: S3Bucket, files: Sequence[ObjectFile]) -> bool:
    """Whether one request for each 1,000 objects deleted them all."""
    try:
        obstore.delete(bucket.deleter, [file.key for file in files])
    except Exception:
        # Then each is deleted alone, and tells its own error.
        return False
    return True


def listed_objects(bucket: S3Bucket, prefix: str) -> Iterator[ObjectMeta]:
    """Yield the objects whose keys begin with `prefix`, which ends with a slash or is empty. One request tells of 1,000 objects.

    Raises PermissionError or OSError, also after some objects, when the store does not tell the rest.
    """
    with _in_our_errors("LIST", prefix):
        for page in obstore.list(bucket.client, prefix=prefix or None, chunk_size=_OBJECTS_AT_ONCE):
            yield from page


class ObjectFile(StoredFile):
    """One object. The text of errors holds the code that the service gave."""

    def __init__(self, location: str, bucket: S3Bucket, key: str) -> None:
        super().__init__(location=location)
        self.bucket = bucket
        self._client = bucket.client
        self.key = key
        self._length: int | None = None
        # The ETag, once a HEAD request has asked for the size.
        self.version: str | None = None

    def __len__(self) -> int:
        """The size in bytes. It is known if this object wrote the file; otherwise a HEAD request asks for it."""
        if self._length is None:
            with _in_our_errors("HEAD", self.location):
                meta = obstore.head(self._client, self.key)
                self._length, self.version = int(meta["size"]), meta["e_tag"]
        return self._length

    def exists(self) -> bool:
        try:
            self._length = None
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        """Read the whole file into memory. This is meant for metadata."""
        data = immutable_files.get(self.bucket, self.location)
        if data is None:
            with _in_our_errors("GET", self.location):
                data = pa.py_buffer(obstore.get(self._client, self.key).bytes())
            immutable_files.keep(self.bucket, self.location, data)
        return pa.BufferReader(data)  # type: ignore[no-any-return]

    def read(self, start: int, length: int) -> pa.Buffer:
        """Read these bytes by one request, as a `pyarrow.Buffer`. The buffer is shorter if the file ends first."""
        if length <= 0:
            return pa.py_buffer(b"")
        with _in_our_errors("GET", self.location):
            return pa.py_buffer(obstore.get_range(self._client, self.key, start=start, length=length))

    def read_spans(self, spans: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Read each (start, length) as a buffer, several at once, by one request each. The client itself would read over gaps of up to one
        MiB."""
        if len(spans) < 2:
            return [self.read(*span) for span in spans]
        with ThreadPoolExecutor(min(len(spans), _READS_AT_ONCE), thread_name_prefix="ranges") as pool:
            return list(pool.map(lambda span: self.read(*span), spans))

    def tail(self, size: int, length: int) -> Tail:
        """Read the last `length` bytes by one request, if the object has `size` bytes. If not, the size in the answer says so."""
        try:
            with _in_our_errors("GET", self.location):
                found = obstore.get(self._client, self.key, options={"range": (max(0, size - length), size)})
                return Tail(bytes(found.bytes()), int(found.meta["size"]), found.meta["e_tag"])
        except (FileNotFoundError, PermissionError):
            raise
        except OSError:
            # A store refuses a range behind the end.
            if len(self) >= size:
                raise
            return Tail(b"", len(self), self.version)

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and not is_unique(self.location) and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        return ObjectOutput(self)

    def to_input_file(self) -> ObjectFile:
        return self

    def delete(self) -> None:
        with _in_our_errors("DELETE", self.location):
            obstore.delete(self._client, self.key)

    def put(self, data: bytes) -> None:
        """Create or replace the object by one request."""
        with _in_our_errors("PUT", self.location):
            obstore.put(self._client, self.key, data, use_multipart=False)

    def writer(self) -> Any:
        """An `obstore` writer. It sends a part whenever one is full."""
        return obstore.open_writer(self._client, self.key, buffer_size=PART_BYTES, max_concurrency=_PARTS_AT_ONCE)

    def written(self, data: bytes | None, length: int) -> None:
        """Note what was written. `data` is the whole content, if it is at hand."""
        self._length = length
        if data is not None:
            immutable_files.keep(self.bucket, self.location, pa.py_buffer(data))


class ObjectOutput(StoredOutput):
    """A stream that creates an object when it is closed. If an error ends its `with` block, no object is created."""

    def __init__(self, file: ObjectFile) -> None:
        super().__init__()
        self._file = file
        self._writer: Any = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if self._writer is None and self._position + len(view) <= PART_BYTES:
            self._held += view
        else:
            self._into_parts(view)
        self._position += len(view)
        return len(view)

    def _into_parts(self, view: memoryview) -> None:
        with _in_our_errors("PUT", self._file.location):
            if self._writer is None:
                self._writer = self._file.writer()
                self._writer.write(bytes(self._held))
                self._held = bytearray()
            self._writer.write(view)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        data = bytes(self._held) if self._writer is None else None
        self._held = bytearray()
        if data is not None:
            self._file.put(data)
            self.content = data
        else:
            with _in_our_errors("PUT", self._file.location):
                self._writer.close()
        self._file.written(data, self._position)

    def discard(self) -> None:
        """Create no object. The store itself removes parts that were sent, by its own rules."""
        self.closed = True
        self._held = bytearray()
        self._writer = None


_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_STATUS = re.compile(r"status code: (\d{3})")


@contextmanager
def _in_our_errors(verb: str, location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, f"{_said(error)} ({verb})", location) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, f"{_said(error)} ({verb})", location) from error
    except BaseError as error:
        raise OSError(f"{_said(error)} ({verb} {location})") from error


def _said(error: BaseException) -> str:
    """The message of the service. The client's own text is the dump of its inner state, over many lines."""
    text = str(error).split("\n\nDebug source:", 1)[0]
    code, message, status = (pattern.search(text) for pattern in (_CODE, _MESSAGE, _STATUS))
    if code is None:
        return " ".join(text.split())
    return f"{code[1]}: {message[1] if message else 'no message'}" + (f", HTTP status {status[1]}" if status else "")
