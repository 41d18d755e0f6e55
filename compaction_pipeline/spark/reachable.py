"""Checks that a Spark on other machines answers, before a session is started.

Spark itself tries for minutes, and its error is pages of Java.
`check_master` only opens a connection, and needs no JVM. `check_answers` asks the master in Spark's own protocol, in the JVM of the driver.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JJavaError

from compaction_pipeline.core.errors import StorageUnavailable

_STANDALONE = "spark://"
_DEFAULT_PORT = 7077


def check_master(master: str, seconds: float) -> None:
    """Check that a standalone master, or one of several, accepts a connection within `seconds`. Other kinds of master are not checked.

    Raises StorageUnavailable.
    """
    failures = []
    for address, host, port in _masters(master):
        try:
            socket.create_connection((host.strip("[]"), port), timeout=seconds).close()
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
        else:
            return
    _raise_for(master, failures)


def check_answers(master: str, seconds: float, jvm: Any, properties: Mapping[str, str]) -> None:
    """Check that a standalone master, or one of several, answers within `seconds` each. Other kinds of master are not checked.

    A driver would wait for a minute. `jvm` is py4j's view of the driver's JVM, and `properties` are those of the session. Raises
    StorageUnavailable.
    """
    failures = []
    for address, host, port in _masters(master):
        try:
            _look_up(host, port, seconds, jvm, properties)
        except Py4JJavaError as error:
            said = str(error.java_exception.toString()).splitlines()[0]
            why = "" if "TimeoutException" in said else f" ({said})"
            failures.append(f"{address}: it accepts connections, but does not answer as a Spark master within {seconds:g} s{why}")
        else:
            return
    _raise_for(master, failures)


def _look_up(host: str, port: int, seconds: float, jvm: Any, properties: Mapping[str, str]) -> None:
    spark = jvm.org.apache.spark
    conf = spark.SparkConf(False)
    for key, value in properties.items():
        conf.set(key, value)
    conf.set("spark.rpc.lookupTimeout", f"{max(1, round(seconds * 1000))}ms")
    # Scala would fill in these default arguments: no key for files, and the usual place of the secret.
    nothing = jvm.scala.Option.empty()
    security = spark.SecurityManager(conf, nothing, getattr(spark.SecurityManager, "$lessinit$greater$default$3")())
    environment = spark.rpc.RpcEnv.create("compaction-pipeline-probe", "127.0.0.1", 0, conf, security, True)
    try:
        environment.setupEndpointRef(spark.rpc.RpcAddress(host, port), "Master")
    finally:
        environment.shutdown()


def _masters(master: str) -> Iterator[tuple[str, str, int]]:
    """The addresses of a standalone master and its stand-ins, each with its host and port. Empty for another kind of Spark."""
    if not master.startswith(_STANDALONE):
        return
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":") if re.search(r":\d+$", address) else (address, "", str(_DEFAULT_PORT))
        yield address, host, int(port)


def _raise_for(master: str, failures: list[str]) -> None:
    if failures:
        raise StorageUnavailable(
            f"Spark at {master} cannot be reached ({'; '.join(failures)}): see that its master runs and that this machine may connect, "
            "or correct COMPACTION_SPARK_MASTER"
        )


def check_connect(remote: str, seconds: float) -> None:
    """Check that a Spark Connect server answers in its protocol within `seconds`. Raises StorageUnavailable."""
    if not remote.startswith("sc://"):
        return
    import grpc
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    channel = DefaultChannelBuilder(remote).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=seconds)
    except grpc.FutureTimeoutError as error:
        raise StorageUnavailable(
            f"Spark Connect at {remote} cannot be reached: no answer within {seconds:g} s; see that its server runs and that this machine "
            "may connect, or correct COMPACTION_SPARK_REMOTE"
        ) from error
    finally:
        channel.close()
