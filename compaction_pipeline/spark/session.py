"""The Spark session that merges run on. It starts at the first use and stays open. Only the process that started it stops it."""

from __future__ import annotations

import importlib
import logging
import os
import re
import signal
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.merging.memory import PURGE_DELAY_MS
from compaction_pipeline.spark.java import find_java
from compaction_pipeline.spark.reachable import check_answers, check_connect, check_master
from compaction_pipeline.spark.session_kind import is_alive, note_application, ship, slots_of

log = logging.getLogger(__name__)

APP_NAME = "compaction-pipeline"
_LOCAL_MASTER = re.compile(r"local(\[(?P<threads>\*|\d+)(?P<failures>,\s*\d+)?\])?")
# Lines that every start of a JVM prints before a log level can be set. Nobody can act on them.
_START_NOISE = re.compile(
    rb"WARNING: Using incubator modules|Using Spark's default log4j profile|Setting default log level to|To adjust logging level use"
    rb"|.* WARN (NativeCodeLoader: Unable to load native-hadoop|Utils: Your hostname|Utils: Set SPARK_LOCAL_IP)"
)


def with_threads(master: str, slots: int) -> str:
    """Return a local master with a thread for each slot, and every other master as it is.

    Slots that wait for storage use no core, so more of them than cores help. In Spark they would wait for one of its threads.
    """
    found = _LOCAL_MASTER.fullmatch(master)
    if found is None or slots <= (os.cpu_count() or 1 if found["threads"] == "*" else int(found["threads"] or 1)):
        return master
    return f"local[{slots}{found['failures'] or ''}]"


@dataclass(frozen=True)
class SparkSettings:
    """Where Spark runs. `remote` is the address of Spark Connect (sc://…) and takes precedence over `master`. `home` is a folder for files
    that are written when a session starts. `name` is the name of the application that Spark shows; a server of Spark Connect has its own.

    `extra` are Spark properties that take precedence over ours. `connect_seconds` limits the wait for the first answer of a Spark
    on other machines.
    """

    master: str = "local[*]"
    remote: str | None = None
    home: str = ""
    extra: Mapping[str, str] = field(default_factory=dict)
    connect_seconds: float = 20
    name: str = APP_NAME

    @property
    def is_local(self) -> bool:
        """Whether executors are threads of a JVM on this machine. They then import our package as this interpreter does."""
        return self.remote is None and self.master.startswith("local")

    @property
    def address(self) -> str:
        """Where Spark runs, as one text."""
        return self.remote or self.master


class SparkSessions:
    """Holds one session. `session` starts it, and starts a new one if the last has died."""

    def __init__(self, settings: SparkSettings) -> None:
        self.settings = settings
        self._session: SparkSession | None = None
        self._is_ours = False
        self._lock = threading.Lock()

    def session(self) -> SparkSession:
        """The running session. Raises ConfigError if Java is missing or wrong, StorageUnavailable if Spark does not start."""
        with self._lock:
            if self._session is None or not is_alive(self._session):
                self._session = self._started()
            note_application(self._session)
            return self._session

    def running(self) -> SparkSession | None:
        """The session, when one was started here and has not been stopped."""
        return self._session

    def stop(self) -> None:
        """Stop the session if it was started here. A session that this process had before stays."""
        with self._lock:
            if self._session is not None and self._is_ours:
                self._session.stop()
            self._session = None

    def slots(self) -> int:
        """The number of tasks that Spark runs at a time."""
        return slots_of(self.session())

    def _started(self) -> SparkSession:
        log.info("starting Spark at %s", self.settings.address)
        try:
            return self._connected() if self.settings.remote is not None else self._launched()
        except (ConfigError, StorageUnavailable):
            raise
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise StorageUnavailable(
                f"Spark at {self.settings.address} does not start: {first}; `doctor --spark` shows what is missing"
            ) from error

    def _connected(self) -> SparkSession:
        check_connect(str(self.settings.remote), self.settings.connect_seconds)
        builder = SparkSession.builder.remote(self.settings.remote)
        for key, value in self.settings.extra.items():
            builder = builder.config(key, value)
        # `getOrCreate` would give us a session that another part of this process started, and `stop` would end it.
        session = builder.getOrCreate() if str(self.settings.remote).startswith("local") else builder.create()
        self._is_ours = True
        ship(session, packaged(self._home()))
        return session

    def _launched(self) -> SparkSession:
        check_master(self.settings.master, self.settings.connect_seconds)
        java = find_java(os.environ, self._home())
        os.environ["JAVA_HOME"] = java.path
        # Workers must use this interpreter: PySpark refuses another minor version, and our package is installed here.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if self.settings.is_local:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf = SparkConf(loadDefaults=False).setMaster(self.settings.master).setAppName(self.settings.name)
        conf.setAll(list((self._properties() | dict(self.settings.extra)).items()))
        if SparkContext._gateway is None:
            SparkContext._ensure_initialized(gateway=_quiet_gateway(conf), conf=conf)
        check_answers(self.settings.master, self.settings.connect_seconds, SparkContext._jvm, dict(conf.getAll()))
        self._is_ours = SparkContext._active_spark_context is None
        with _same_interrupt_handler():
            session = SparkSession.builder.config(conf=conf).getOrCreate()
        if self._is_ours:
            session.sparkContext.setLogLevel("ERROR")
        if self.settings.is_local:
            # If another part of this process started the context, it may name another interpreter.
            session.sparkContext.pythonExec = sys.executable
        else:
            ship(session, packaged(self._home()))
        return session

    def _properties(self) -> dict[str, str]:
        properties = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # A second execution of a task would only repeat its work.
            "spark.speculation": "false",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.python.worker.reuse": "true",
            "spark.sql.adaptive.enabled": "false",
            "spark.executorEnv.MIMALLOC_PURGE_DELAY": str(PURGE_DELAY_MS),
        }
        if self.settings.is_local:
            properties |= {
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.memory": "1g",
                # No row crosses this JVM. Its second compiler would take more CPU than it can save.
                "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1",
            }
        return properties

    def _home(self) -> Path:
        if not self.settings.home:
            raise ConfigError("the Spark settings name no home folder; set COMPACTION_HOME")
        home = Path(self.settings.home)
        home.mkdir(parents=True, exist_ok=True)
        return home


def _quiet_gateway(conf: SparkConf, launch: Callable[..., Any] = launch_gateway) -> Any:
    """Start a JVM with `launch`. Its stderr is passed on to ours, without the lines that every start prints."""
    reading, writing = os.pipe()
    threading.Thread(target=_pass_on, args=(reading,), name="spark-stderr", daemon=True).start()
    try:
        with _interrupts_delayed():
            return launch(conf, popen_kwargs={"stderr": writing})
    finally:
        os.close(writing)


@contextmanager
def _interrupts_delayed() -> Iterator[None]:
    """Hold back Ctrl-C and requests to end, and raise them afterwards.

    If PySpark is interrupted while a JVM starts, this JVM stays for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: handler for number in (signal.SIGINT, signal.SIGTERM) if (handler := signal.getsignal(number)) is not None}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """While somebody else's code starts a session, hold back requests to end, and keep the program's own handler of Ctrl-C."""
    with _interrupts_delayed(), _same_interrupt_handler():
        yield


@contextmanager
def _same_interrupt_handler() -> Iterator[None]:
    """Keep the program's own handler of Ctrl-C. A SparkContext would put in its own, which raises at any place in the code."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


def _pass_on(reading: int) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if not _START_NOISE.match(line):
                os.write(2, line)


def packaged(home: Path) -> Path:
    """Write our package as a zip file that executors on other machines can import."""
    package = importlib.import_module("compaction_pipeline")
    root = Path(next(iter(package.__path__)))
    archive = home / "compaction_pipeline.zip"
    draft = archive.with_name(f"compaction_pipeline.{os.getpid()}.zip")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle:
        for file in sorted(root.rglob("*.py")):
            bundle.write(file, Path("compaction_pipeline") / file.relative_to(root))
    draft.replace(archive)
    return archive
