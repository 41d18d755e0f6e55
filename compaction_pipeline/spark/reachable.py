"""Whether a Spark elsewhere is there at all, asked before a JVM or a session is started: both try for minutes, and end in pages of Java."""

from __future__ import annotations

import re
import socket

from compaction_pipeline.core.errors import StorageUnavailable

_STANDALONE = "spark://"
_DEFAULT_PORT = 7077


def check_master(master: str, seconds: float) -> None:
    """A standalone master, or one of several, accepts a connection within `seconds`; others are not asked.

    Raises StorageUnavailable.
    """
    if not master.startswith(_STANDALONE):
        return
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        host, _, port = address.rpartition(":") if re.search(r":\d+$", address) else (address, "", str(_DEFAULT_PORT))
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=seconds).close()
        except OSError as error:
            failures.append(f"{address}: {error.strerror or error}")
        else:
            return
    raise StorageUnavailable(
        f"Spark at {master} cannot be reached ({'; '.join(failures)}): see that its master runs and that this machine may connect, "
        "or correct COMPACTION_SPARK_MASTER"
    )


def check_connect(remote: str, seconds: float) -> None:
    """A Spark Connect server answers, as one that speaks its protocol, within `seconds`. Raises StorageUnavailable."""
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
