"""S3 (s3proxy over a folder), Iceberg's own REST catalog and the API of Glue (moto), each a process on a free loopback port.

A server ends with its block. Its output goes to a log file in its folder. The error of a failed start repeats that log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from compaction_pipeline_tests.interop.peers import SPARK_JARS, java, rest_catalog_jars, s3_jars
from compaction_pipeline_tests.ports import free_port
from compaction_pipeline_tests.real_services.fault_proxy import fault_proxy
from compaction_pipeline_tests.real_services.gates import GlueVersions
from compaction_pipeline_tests.reference_reader import MOUNTS

REGION = "us-east-1"
ACCESS_KEY = "compaction"
SECRET_KEY = "compaction-secret"
BUCKET = "lakehouse"
_START_SECONDS = 240
"""The limit for the start of a server. A JVM starts slowly on a busy machine."""


@dataclass(frozen=True)
class S3Server:
    """An S3 that accepts one key pair and checks signatures. It has the bucket `BUCKET`."""

    port: int
    folder: Path
    """The folder of the stored objects. The object `key` of a bucket is the file `bucket/key`."""

    def properties(self, port: int | None = None) -> dict[str, str]:
        """Properties of a catalog whose tables are on this S3. `port` is the port of a proxy in front of it."""
        return {
            "s3.endpoint": f"http://127.0.0.1:{port or self.port}",
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": REGION,
            "s3.force-virtual-addressing": "false",
        }


@dataclass(frozen=True)
class RestCatalogServer:
    """A REST catalog whose tables are below `warehouse`. It accepts any OAuth2 client, and its tokens do not expire."""

    port: int
    warehouse: str

    def properties(self, port: int | None = None) -> dict[str, str]:
        """Properties that open the catalog. `port` is the port of a proxy in front of it."""
        return {"type": "rest", "uri": f"http://127.0.0.1:{port or self.port}", "warehouse": self.warehouse}


@dataclass(frozen=True)
class GlueServer:
    """The API of Glue, which refuses an update that names an old version of a table. It has one account, and accepts every key."""

    port: int
    unchecked_port: int
    """The same, but updates are never refused. Other services with Glue's API may be so."""
    warehouse: str

    def properties(self, port: int | None = None) -> dict[str, str]:
        """Properties that open the catalog. `port` is the port of a proxy in front of it."""
        return {
            "type": "glue",
            "glue.endpoint": f"http://127.0.0.1:{port or self.port}",
            "glue.region": REGION,
            "glue.access-key-id": "AKGLUE",
            "glue.secret-access-key": SECRET_KEY,
            "warehouse": self.warehouse,
        }


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """An S3 over `folder/objects`, until the block ends. Until then the reference reader can read tables on it. Use one at a time."""
    jar = next(s3_jars().glob("s3proxy-*.jar"))
    objects = folder / "objects"
    (objects / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.identity": ACCESS_KEY,
        "s3proxy.credential": SECRET_KEY,
        "s3proxy.ignore-unknown-headers": "true",
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(objects),
    }
    configuration = folder / "s3proxy.conf"
    configuration.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [str(java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-jar", str(jar), "--properties", str(configuration)]
    with _process(command, {}, port, folder / "s3proxy.log"):
        MOUNTS[f"s3://{BUCKET}/"] = str(objects / BUCKET)
        try:
            yield S3Server(port, objects)
        finally:
            del MOUNTS[f"s3://{BUCKET}/"]


@contextmanager
def rest_catalog_server(folder: Path, s3: S3Server, s3_port: int | None = None) -> Iterator[RestCatalogServer]:
    """A REST catalog with its database in `folder` and its tables on this S3, until the block ends.

    The server itself writes the metadata files. `s3_port` is the port of a proxy that it writes through.
    """
    port = free_port()
    warehouse = f"s3://{BUCKET}/rest"
    # The server makes catalog properties from these variables: it removes CATALOG_, and turns `__` into a hyphen and `_` into a dot.
    settings = {
        "CATALOG_REST_PORT": str(port),
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder / 'rest-catalog.db'}",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_WAREHOUSE": warehouse,
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": f"http://127.0.0.1:{s3_port or s3.port}",
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_S3_ACCESS__KEY__ID": ACCESS_KEY,
        "CATALOG_S3_SECRET__ACCESS__KEY": SECRET_KEY,
        "CATALOG_CLIENT_REGION": REGION,
        "AWS_REGION": REGION,
    }
    hadoop = [str(jar) for jar in SPARK_JARS.glob("hadoop-client-*.jar")]
    classpath = os.pathsep.join([f"{rest_catalog_jars()}{os.sep}*", *hadoop])
    server = "org.apache.iceberg.rest.RESTCatalogServer"
    command = [str(java()), "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", classpath, server]
    with _process(command, settings, port, folder / "rest-catalog.log", path="/v1/config"):
        yield RestCatalogServer(port, warehouse)


@contextmanager
def glue_server(folder: Path) -> Iterator[GlueServer]:
    """The API of Glue with tables below `glue/` of the bucket, until the block ends. It keeps them in memory."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _process(command, {}, port, folder / "moto.log", path="/moto-api/data.json"), fault_proxy(port) as checked:
        checked.gate = GlueVersions()
        yield GlueServer(checked.port, port, f"s3://{BUCKET}/glue")


@contextmanager
def _process(command: Sequence[str], settings: Mapping[str, str], port: int, log: Path, path: str = "/") -> Iterator[None]:
    """A process that ends with the block. The block begins when the process answers HTTP on this port."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env={**os.environ, **settings}, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(port, path):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[-1]} did not start: {log.read_text(errors='replace')[-2000:]}")
            threading.Event().wait(0.05)
        yield
    finally:
        # Its data is not needed afterwards, so it is killed.
        process.kill()
        process.wait()


def _answers(port: int, path: str) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        connection.getresponse().read()
    except (OSError, HTTPException):
        return False
    else:
        return True
    finally:
        connection.close()
