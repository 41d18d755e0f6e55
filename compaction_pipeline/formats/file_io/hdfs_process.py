"""Answers the requests of one HDFS client. It runs as a program of its own, in a process of its own, and imports nothing of this package.

The client library takes the user and the Kerberos files from the environment of its process, each time that it connects. One process for
each identity keeps the identity of one catalog out of all others. It ends when the process that started it ends.
"""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from hdfs_native import Client, FileWriter, WriteOptions

_REQUESTS_AT_ONCE = 16

Status = tuple[int, bool, int]
"""The size in bytes, whether it is a folder, and the time of the last change in ms since 1970."""


class Requests:
    """Each method is a request that the parent may send. Paths begin with a slash."""

    def __init__(self, url: str, conf: dict[str, str], conf_folder: str | None) -> None:
        self._client = Client(url, conf, conf_folder)
        self._writers: dict[int, FileWriter] = {}
        self._numbers = itertools.count()

    def status(self, path: str) -> Status:
        found = self._client.get_file_info(path)
        return found.length, found.isdir, found.modification_time

    def entries(self, folder: str) -> list[tuple[str, Status]]:
        """The whole content of a folder, without that of folders in it."""
        found = self._client.list_status(folder, recursive=False)
        return [(one.path, (one.length, one.isdir, one.modification_time)) for one in found]

    def read(self, path: str, start: int, length: int) -> bytes:
        """These bytes, or fewer if the file ends first."""
        reader = self._client.read(path)
        # The library crashes when it is asked for bytes behind the end.
        length = min(length, len(reader) - start)
        return reader.read_range(start, length) if length > 0 else b""

    def whole(self, path: str) -> bytes:
        reader = self._client.read(path)
        return reader.read_range(0, len(reader)) if len(reader) else b""

    def last(self, path: str, length: int) -> tuple[bytes, Status]:
        """The last bytes of a file, and its status before they were read."""
        status = self.status(path)
        return self.read(path, max(0, status[0] - length), length), status

    def create(self, path: str, overwrite: bool) -> int:
        """Create a file and the folders above it. Return the number of its writer."""
        number = next(self._numbers)
        self._writers[number] = self._client.create(path, WriteOptions(overwrite=overwrite, create_parent=True))
        return number

    def write(self, number: int, data: bytes) -> None:
        self._writers[number].write(data)

    def close(self, number: int) -> None:
        self._writers.pop(number).close()

    def discard(self, number: int, path: str) -> None:
        """Delete a file that was not written to its end."""
        self._writers.pop(number, None)
        self._client.delete(path, False)

    def delete(self, path: str) -> None:
        """Delete a file. Raises FileNotFoundError, and IsADirectoryError for a folder, which stays."""
        if self._client.get_file_info(path).isdir:
            raise IsADirectoryError("it is a folder")
        if not self._client.delete(path, False):
            raise FileNotFoundError("it was deleted a moment ago")


def answer(connection: Any) -> None:
    """Answer requests until the other side closes the connection."""
    sending = Lock()
    requests: Requests | None = None
    problem: BaseException | None = None
    url, conf, conf_folder = connection.recv()
    try:
        requests = Requests(url, conf, conf_folder)
    except BaseException as error:
        problem = error

    def run(number: int, name: str, arguments: tuple[Any, ...]) -> None:
        try:
            if problem is not None:
                raise problem
            found: tuple[bool, Any] = True, getattr(requests, name)(*arguments)
        except BaseException as error:
            # A crash of the library is no Exception.
            found = False, (type(error).__name__, str(error))
        with sending:
            connection.send((number, *found))

    with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
        while True:
            try:
                number, name, arguments = connection.recv()
            except (EOFError, OSError):
                break
            pool.submit(run, number, name, arguments)


if __name__ == "__main__":
    answer(Connection(int(sys.argv[1])))
