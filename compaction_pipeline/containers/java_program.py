"""Calls the classes of a Java library from Python, in a JVM that ends with the block, or at its deadline."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Timer
from typing import Any

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError, is_fatal_error

# What goes wrong is told by an error. Without a handler Python would print it beside that.
logging.getLogger("py4j").addHandler(logging.NullHandler())


class JavaFailed(Exception):
    """The JVM did not start, did not answer in time, or a method threw. The text is the last cause in words."""


class _AsksOnce(GatewayClient):  # type: ignore[misc]
    """A client that does not ask a JVM again that has ended.

    Py4j's own does, and logs that through Python's root logger. The first such message would give this process a second handler, which
    repeats each line of its log from then on.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        connection = self._get_connection()
        try:
            response = connection.send_command(command)
        except Py4JNetworkError:
            connection.close()
            raise
        if binary:
            return response, self._create_connection_guard(connection)
        if is_fatal_error(response):
            connection.close(False)
        else:
            self._give_back_connection(connection)
        return response


class _Gateway(JavaGateway):  # type: ignore[misc]
    def _create_gateway_client(self) -> _AsksOnce:
        return _AsksOnce(gateway_parameters=self.gateway_parameters)


@contextmanager
def java_program(
    java: Path, classpath: Sequence[str], options: Sequence[str], environment: Mapping[str, str], seconds: float, folder: Path | None = None
) -> Iterator[Any]:
    """Yield py4j's view of a new JVM, which is killed after this many seconds, and at the end of the block. It works in `folder`.

    It listens on a loopback port of its own and wants a password that only this process knows. It also ends when this process does.
    Raises JavaFailed when the JVM does not start, and when a method that the block calls throws or does not return before the deadline.
    """
    command = [str(java), *options, "-cp", ":".join(classpath), "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
    try:
        process = subprocess.Popen(
            command, env=dict(environment), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        raise JavaFailed(f"{java} cannot be started: {error}") from error
    is_late = Event()

    def give_up() -> None:
        is_late.set()
        process.kill()

    deadline = Timer(seconds, give_up)
    deadline.daemon = True
    deadline.start()
    gateway = None
    try:
        assert process.stdout is not None
        port, token = (process.stdout.readline().decode().strip() for _ in range(2))
        if not port.isdigit():
            raise JavaFailed(f"{java} did not start within {seconds:g} s" if is_late.is_set() else f"{java} ended at its start: {port}")
        gateway = _Gateway(
            gateway_parameters=GatewayParameters(port=int(port), auth_token=token, auto_convert=True, enable_memory_management=False)
        )
        yield gateway.jvm
    except Py4JJavaError as error:
        raise JavaFailed(_cause(error)) from error
    except (Py4JError, OSError) as error:
        raise JavaFailed(f"the JVM did not answer within {seconds:g} s" if is_late.is_set() else f"py4j failed: {error}") from error
    finally:
        deadline.cancel()
        process.kill()
        if gateway is not None:
            gateway.close()
        process.communicate()


def _cause(error: Py4JJavaError) -> str:
    """The first line of what an exception of Java says, without a link to Hadoop's wiki."""
    thrown = error.java_exception
    said = str(thrown.getMessage() or thrown.toString())
    return said.partition("\n")[0].partition("; For more details")[0]
