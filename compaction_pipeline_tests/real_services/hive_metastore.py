"""A real Hive metastore from PySpark's jars, and a proxy in front of it that injects faults into calls by their names.

The metastore keeps its database in memory.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError

from compaction_pipeline_tests.interop.peers import SPARK_JARS, java
from compaction_pipeline_tests.ports import free_port

LOCK_TIMEOUT_SECONDS = 6
"""The metastore takes a lock away when no heartbeat has come for this long."""

_PART = 1 << 20
_START_SECONDS = 240


@dataclass(frozen=True)
class HiveMetastore:
    """A metastore whose tables are below `warehouse`. It checks `expected_parameter_key`, as Hive 2.3.10 does."""

    port: int
    warehouse: str

    def properties(self, port: int | None = None) -> dict[str, str]:
        """Properties that open the catalog. `port` is the port of a proxy in front of it."""
        return {"type": "hive", "uri": f"thrift://127.0.0.1:{port or self.port}", "warehouse": self.warehouse}

    def forget_databases(self) -> None:
        """Drop every database with its tables, and leave their files."""
        from compaction_pipeline.iceberg.catalogs.hive_client import connections
        from compaction_pipeline.iceberg.catalogs.rest_catalog import RequestLimits

        with connections(self.properties(), RequestLimits())() as client:
            for name in client.get_all_databases():
                if name != "default":
                    client.drop_database(name, False, True)


@contextmanager
def hive_metastore(folder: Path, more: Mapping[str, str] | None = None, conf: Path | None = None) -> Iterator[HiveMetastore]:
    """A metastore that logs to `folder`, until the block ends.

    `more` are settings of Hive and of Java. In the folder `conf` are files of Hadoop, such as core-site.xml.
    """
    port = free_port()
    settings = {
        # Its logger needs a package that PySpark does not have.
        "hive.async.log.enabled": "false",
        "hive.log.dir": str(folder),
        "hive.log.level": "WARN",
        "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hms;create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "datanucleus.connectionPoolingType": "HikariCP",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.warehouse.dir": str(folder / "warehouse"),
        "derby.stream.error.file": str(folder / "derby.log"),
        # The thread that takes locks away runs only with these three.
        "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
        "hive.support.concurrency": "true",
        "hive.compactor.initiator.on": "true",
        "hive.txn.timeout": f"{LOCK_TIMEOUT_SECONDS}s",
        "hive.timedout.txn.reaper.start": "1s",
        "hive.timedout.txn.reaper.interval": "1s",
        **(more or {}),
    }
    with (folder / "metastore.log").open("w") as log:
        gateway_port, process = launch_gateway(
            jarpath=str(next(SPARK_JARS.glob("py4j-*.jar"))),
            classpath=os.pathsep.join([*([str(conf)] if conf else []), f"{SPARK_JARS}{os.sep}*"]),
            javaopts=["-Xmx400m", "-XX:TieredStopAtLevel=1", *(f"-D{key}={value}" for key, value in settings.items())],
            java_path=str(java()),
            die_on_exit=True,
            redirect_stdout=log,
            redirect_stderr=log,
            return_proc=True,
        )
        try:
            gateway = JavaGateway(gateway_parameters=GatewayParameters(port=gateway_port))
            # Its database is of this process of Java alone, so its tables are made here.
            hive = gateway.jvm.org.apache.hadoop.hive
            hive.metastore.txn.TxnDbUtil.prepDb(hive.conf.HiveConf())
            threading.Thread(target=_serve_metastore, args=(gateway, port), daemon=True).start()
            deadline = time.monotonic() + _START_SECONDS
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the metastore did not start: {(folder / 'metastore.log').read_text(errors='replace')[-2000:]}")
                threading.Event().wait(0.05)
            yield HiveMetastore(port, f"file://{folder / 'warehouse'}")
        finally:
            # Its data is not needed afterwards, so it is killed.
            process.kill()
            process.wait()


def _serve_metastore(gateway: JavaGateway, port: int) -> None:
    arguments = gateway.new_array(gateway.jvm.java.lang.String, 2)
    arguments[0], arguments[1] = "-p", str(port)
    # The call ends when the process is killed.
    with suppress(Py4JError, OSError):
        gateway.jvm.org.apache.hadoop.hive.metastore.HiveMetaStore.main(arguments)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Unsent:
    """The metastore never gets the call, and the connection ends."""


@dataclass(frozen=True)
class AnswerLost:
    """The metastore carries the call out, and the connection ends before its answer."""


@dataclass
class Late:
    """The connection ends, and the metastore gets the call when `land` is set. `landed` is set when it has answered."""

    land: threading.Event = field(default_factory=threading.Event)
    landed: threading.Event = field(default_factory=threading.Event)


CallFault = Unsent | AnswerLost | Late


class ThriftProxy:
    """A running proxy. It knows a call by its name, because a client sends a call when it has the answer to the one before."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._faults: dict[str, CallFault] = {}
        self.calls: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def fault(self, call: str, fault: CallFault) -> Iterator[None]:
        """Apply this fault to each call of this name, until the block ends."""
        self._faults[call] = fault
        try:
            yield
        finally:
            del self._faults[call]

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(("127.0.0.1", self._server_port)) as server:
            fault: CallFault | None = None
            is_answered = True
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if server in ready:
                    answer = server.recv(_PART)
                    if not answer or fault is not None:
                        return
                    client.sendall(answer)
                    is_answered = True
                    continue
                request = client.recv(_PART)
                if not request:
                    return
                if is_answered:
                    is_answered = False
                    name = _call(request)
                    self.calls.append(name)
                    fault = self._faults.get(name)
                if isinstance(fault, Unsent):
                    return
                if isinstance(fault, Late):
                    _carry_out_late(fault, client, server, request)
                    return
                server.sendall(request)


def _carry_out_late(fault: Late, client: socket.socket, server: socket.socket, request: bytes) -> None:
    while select.select([client], [], [], 0.2)[0] and (more := client.recv(_PART)):
        request += more
    client.shutdown(socket.SHUT_RDWR)
    fault.land.wait()
    server.sendall(request)
    server.recv(_PART)
    fault.landed.set()


def _call(request: bytes) -> str:
    """The name in the header of a message of Thrift's binary protocol."""
    length = struct.unpack(">i", request[4:8])[0]
    return request[8 : 8 + length].decode()


@contextmanager
def thrift_proxy(server_port: int) -> Iterator[ThriftProxy]:
    """A proxy in front of the metastore on this loopback port, until the block ends."""
    proxy = ThriftProxy(server_port)
    try:
        yield proxy
    finally:
        proxy.close()
