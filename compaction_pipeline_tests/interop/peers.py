"""Fetches the engines and servers that tests compare with or run on, once, into folders of their own below `.venv`.

They cannot be part of our environment: jars of Flink and of the servers would clash with Spark's, and DuckDB's extension needs exactly
its own version of DuckDB. When a registry does not answer, the tests are skipped with its error; on CI they fail.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from compaction_pipeline.spark.java import find_java

FLINK = "2.1.3"
FLINK_ICEBERG = "1.11.0"
"""The newest iceberg-flink-runtime for this Flink."""
DUCKDB = "1.5.5"
"""The newest version of DuckDB for which PyPI has the iceberg extension."""
S3PROXY = "4.1.0"
REST_CATALOG = "1.11.0"
"""The newest iceberg-open-api that contains Iceberg's REST catalog for tests."""
KAFKA = "3.9.1"
"""The version of Kafka for which this Iceberg's connector is built."""
KAFKA_BROKER = "4.1.1"
KUBERNETES_MOCK = "7.4.0"
KEDA = "2.16.1.0"
"""The newest version that runs on every Python that this package runs on."""
_JETTY = "12.1.5"
_SQLITE = "3.46.1.3"
_JUNIT = "4.13.2"
_BOUNCY_CASTLE = "1.78.1"

SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_HOME = Path(sys.prefix) / "peers"
HADOOP = next(SPARK_JARS.glob("hadoop-client-api-*.jar")).stem.rpartition("-")[2]
"""The version of Hadoop that PySpark contains. HDFS must have the same, because both run on the jars of PySpark."""
_IVY_CACHE = Path.home() / ".ivy2.5.2" / "cache"

_S3PROXY = f"""
    <dependency org="org.gaul" name="s3proxy" rev="{S3PROXY}" conf="default->master" transitive="false">
      <artifact name="s3proxy" type="jar" ext="jar" m:classifier="jar-with-dependencies"/></dependency>"""

# Iceberg's AWS bundle contains only the SDK. A dependency that lists artifacts of its own gets only those.
_REST_CATALOG = f"""
    <dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{REST_CATALOG}" conf="default->master" transitive="false">
      <artifact name="iceberg-open-api" type="jar" ext="jar" m:classifier="test-fixtures"/></dependency>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{REST_CATALOG}">
      <artifact name="iceberg-core" type="jar" ext="jar"/>
      <artifact name="iceberg-core" type="jar" ext="jar" m:classifier="tests"/></dependency>
    <dependency org="org.apache.iceberg" name="iceberg-aws" rev="{REST_CATALOG}"/>
    <dependency org="org.apache.iceberg" name="iceberg-aws-bundle" rev="{REST_CATALOG}"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="{_SQLITE}"/>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{_JETTY}"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-server" rev="{_JETTY}"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-gzip" rev="{_JETTY}"/>"""

# The connector brings a client for each cloud. Its committing part needs none of them.
_KAFKA_CONNECT = f"""
    <dependency org="org.apache.iceberg" name="iceberg-kafka-connect" rev="{FLINK_ICEBERG}" conf="default->master" transitive="false"/>
    <dependency org="org.apache.iceberg" name="iceberg-kafka-connect-events" rev="{FLINK_ICEBERG}"
      conf="default->master" transitive="false"/>
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{FLINK_ICEBERG}"/>
    <dependency org="org.apache.iceberg" name="iceberg-data" rev="{FLINK_ICEBERG}"/>
    <dependency org="org.apache.kafka" name="connect-json" rev="{KAFKA}"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="{_SQLITE}"/>"""

# The POM of the cluster leaves out what servers of YARN still need.
_YARN = f"""
    <dependency org="org.apache.hadoop" name="hadoop-client-minicluster" rev="{HADOOP}" conf="default->master" transitive="false"/>
    <dependency org="junit" name="junit" rev="{_JUNIT}" conf="default->master" transitive="false"/>
    <dependency org="org.bouncycastle" name="bcprov-jdk18on" rev="{_BOUNCY_CASTLE}" conf="default->master" transitive="false"/>
    <dependency org="org.bouncycastle" name="bcpkix-jdk18on" rev="{_BOUNCY_CASTLE}" conf="default->master" transitive="false"/>
    <dependency org="org.bouncycastle" name="bcutil-jdk18on" rev="{_BOUNCY_CASTLE}" conf="default->master" transitive="false"/>
    <dependency org="javax.xml.bind" name="jaxb-api" rev="2.3.1" conf="default->master" transitive="false"/>
    <dependency org="org.glassfish.jaxb" name="jaxb-runtime" rev="2.3.9"/>"""

_KUBERNETES = f"""
    <dependency org="io.fabric8" name="kubernetes-server-mock" rev="{KUBERNETES_MOCK}"/>"""


def flink_jars() -> Path:
    """A folder with the jars of Flink, its Iceberg connector and SQLite's driver.

    The package `apache-flink-libraries` contains all Java parts of Flink. PyFlink itself (`apache-flink`) is not needed to run SQL. It
    would bring Apache Beam, and has wheels for only a few versions of Python.
    """
    return _made(f"flink-{FLINK}-iceberg-{FLINK_ICEBERG}", _fetch_flink)


def kafka_connect_jars() -> Path:
    """A folder with the jars of Iceberg's sink connector for Kafka Connect, the clients of Kafka and SQLite's driver."""
    return _made(f"kafka-connect-{FLINK_ICEBERG}-kafka-{KAFKA}", lambda folder: _ivy_all(folder, _KAFKA_CONNECT))


def kafka_jars() -> Path:
    """A folder with a broker of Kafka. It logs nothing, because there is no backend for its log."""
    broker = f"""
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_BROKER}"/>"""
    return _made(f"kafka-{KAFKA_BROKER}", lambda folder: _ivy_all(folder, broker))


def duckdb_packages() -> Path:
    """A folder for the front of PYTHONPATH, with DuckDB and the extensions that read Iceberg tables offline."""
    names = ["duckdb", "duckdb-extension-avro", "duckdb-extension-httpfs", "duckdb-extension-iceberg"]
    return _made(f"duckdb-{DUCKDB}", lambda folder: _pip("install", "--target", str(folder), *(f"{name}=={DUCKDB}" for name in names)))


def keda_packages() -> Path:
    """A folder for the front of PYTHONPATH, with classes that were made from KEDA's own definitions of its resources."""
    return _made(f"keda-{KEDA}", lambda folder: _pip("install", "--target", str(folder), f"cloudcoil-models-keda=={KEDA}"))


def s3_jars() -> Path:
    """A folder with s3proxy, an S3 that stores objects as files and checks signatures."""
    return _made(f"s3proxy-{S3PROXY}", lambda folder: _ivy_all(folder, _S3PROXY))


def rest_catalog_jars() -> Path:
    """A folder with Iceberg's own REST catalog for tests and the jars that it needs, except Hadoop's, which PySpark contains."""
    return _made(f"rest-catalog-{REST_CATALOG}", lambda folder: _ivy_all(folder, _REST_CATALOG))


def hdfs_jars() -> Path:
    """A folder with Hadoop's small HDFS for tests. PySpark contains the rest of Hadoop."""

    def fetch(folder: Path) -> None:
        _ivy(folder, "org.apache.hadoop", "hadoop-client-minicluster", HADOOP)
        _ivy(folder, "junit", "junit", _JUNIT)

    return _made(f"hdfs-{HADOOP}", fetch)


def yarn_jars() -> Path:
    """A folder with Hadoop's small YARN for tests, and what it needs beside its own jar and those of PySpark."""
    return _made(f"yarn-{HADOOP}", lambda folder: _ivy_all(folder, _YARN))


def kubernetes_jars() -> Path:
    """A folder with fabric8's API server of Kubernetes for tests, and all that it needs."""
    return _made(f"kubernetes-{KUBERNETES_MOCK}", lambda folder: _ivy_all(folder, _KUBERNETES))


def java() -> Path:
    """The Java that the product finds, or the product's own when the machine has none."""
    return Path(find_java(os.environ, _HOME).path) / "bin" / "java"


@contextmanager
def alone_in_the_cache() -> Iterator[None]:
    """Let one process at a time fetch from Maven. Two workers of pytest that fill Ivy's cache at once could spoil each other's files."""
    _HOME.mkdir(exist_ok=True)
    with (_HOME / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _made(name: str, make: Callable[[Path], None]) -> Path:
    folder = _HOME / name
    if folder.exists():
        return folder
    draft = _HOME / f"{name}.{os.getpid()}"
    draft.mkdir(parents=True)
    try:
        with alone_in_the_cache():
            if not folder.exists():
                make(draft)
                # The folder gets its name only when it is complete, so an interrupted download starts again.
                draft.rename(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        if folder.exists():
            return folder
        said = getattr(error, "stderr", None) or str(error)
        reason = f"{name} cannot be fetched: {said.strip().splitlines()[-1]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _fetch_flink(folder: Path) -> None:
    sources = folder / "sources"
    _pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(sources), f"apache-flink-libraries=={FLINK}")
    for archive in sources.iterdir():
        with tarfile.open(archive) as members:
            for member in members:
                path = Path(member.name)
                source = members.extractfile(member) if path.suffix == ".jar" and path.parts[1:3] == ("deps", "lib") else None
                if source is not None:
                    with source, (folder / path.name).open("wb") as target:
                        shutil.copyfileobj(source, target)
    shutil.rmtree(sources)
    _ivy(folder, "org.apache.iceberg", f"iceberg-flink-runtime-{FLINK.rpartition('.')[0]}", FLINK_ICEBERG)
    _ivy(folder, "org.xerial", "sqlite-jdbc", _SQLITE)


def _ivy(folder: Path, organisation: str, name: str, version: str) -> None:
    """Fetch a jar from Maven with the client that PySpark contains, through Spark's cache."""
    what = ["-dependency", organisation, name, version, "-notransitive", "-types", "jar", "-confs", "default"]
    _run([str(java()), "-jar", str(_ivy_jar()), "-cache", str(_IVY_CACHE), *what, "-retrieve", str(folder / "[artifact]-[revision].[ext]")])
    if not (folder / f"{name}-{version}.jar").exists():
        raise FileNotFoundError(f"Maven has no {organisation}:{name}:{version}")


def _ivy_all(folder: Path, dependencies: str) -> None:
    """Fetch these dependencies with all that they need. They are written in Ivy's XML, because that supports Maven's classifiers."""
    module = folder / "ivy.xml"
    module.write_text(
        f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="compaction-pipeline" module="{folder.name.partition(".")[0]}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconf="default->runtime(*),master(*)">{dependencies}</dependencies>
</ivy-module>"""
    )
    pattern = str(folder / "[artifact]-[revision](-[classifier]).[ext]")
    _run([str(java()), "-jar", str(_ivy_jar()), "-cache", str(_IVY_CACHE), "-ivy", str(module), "-retrieve", pattern])
    if not list(folder.glob("*.jar")):
        raise FileNotFoundError("Maven has none of the jars")


def _ivy_jar() -> Path:
    return next(SPARK_JARS.glob("ivy-*.jar"))


def _pip(*arguments: str) -> None:
    # `uv sync` installs no pip in our own environment.
    home = _HOME / "pip"
    if not (home / "bin" / "pip").exists():
        _run([sys.executable, "-m", "venv", str(home)])
    _run([str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments])


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
