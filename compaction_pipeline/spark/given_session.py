"""The Spark session that a project gives to the merges: the `spark_session` of its resource `pyspark`.

Nothing is set on it, and it is never stopped. Only our package is sent to its workers, as a zip file.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from compaction_pipeline.core.errors import ConfigError, StorageUnavailable
from compaction_pipeline.spark.session import interrupts_kept, packaged
from compaction_pipeline.spark.session_kind import application_of, is_alive, note_application, runs_here, ship, slots_of

log = logging.getLogger(__name__)


class GivenSession:
    """Opens the session at the first merge, once for all threads: `getOrCreate` of PySpark has no lock of its own.

    `open_session` returns the session, and `home` is a folder for the zip file of our package.
    """

    def __init__(self, open_session: Callable[[], SparkSession], home: Path) -> None:
        self._open_session = open_session
        self._home = home
        self._session: SparkSession | None = None
        self._lock = threading.Lock()

    def session(self) -> SparkSession:
        """The running session. Raises StorageUnavailable when it does not start or was stopped, ConfigError when there is none."""
        with self._lock:
            if self._session is None:
                self._session = self._opened()
            if not is_alive(self._session):
                raise StorageUnavailable(
                    "the Spark session of the resource 'pyspark' was stopped, or its JVM is gone. The program stops no session that it did "
                    "not start: see the run's log for who did, and launch the run again"
                )
            note_application(self._session)
            return self._session

    def running(self) -> SparkSession | None:
        """The session, when it was opened."""
        return self._session

    def stop(self) -> None:
        """Do nothing: whoever started the session stops it."""

    def slots(self) -> int:
        """The number of tasks that Spark runs at a time."""
        return slots_of(self.session())

    def _opened(self) -> SparkSession:
        log.info("opening the Spark session of the resource 'pyspark'")
        try:
            with interrupts_kept():
                session = self._open_session()
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise StorageUnavailable(
                f"the resource 'pyspark' does not give a Spark session: {first}. Correct the resource, or leave it out: then the settings "
                "COMPACTION_SPARK_MASTER and COMPACTION_SPARK_REMOTE say where merges run"
            ) from error
        if not hasattr(session, "range"):
            raise ConfigError(
                f"the 'spark_session' of the resource 'pyspark' is {type(session).__name__} but must be a session of PySpark or of Spark "
                "Connect; correct the resource"
            )
        if runs_here(session):
            _warn_of_other_python(session)
        else:
            self._home.mkdir(parents=True, exist_ok=True)
            ship(session, packaged(self._home))
        log.info("merges run in %s, which the resource 'pyspark' gave", application_of(session))
        return session


def _warn_of_other_python(session: SparkSession) -> None:
    """Say so when the local workers may lack our libraries. The session is not ours, so it keeps its interpreter."""
    named = session.sparkContext.pythonExec
    found = shutil.which(named)
    if found is None or Path(found).parent != Path(sys.executable).parent:
        log.warning(
            "the workers of the resource 'pyspark' run %s (%s), not this interpreter: when merges miss a module, set PYSPARK_PYTHON=%s for "
            "the process that starts the session",
            named,
            found or "which is not on the PATH",
            sys.executable,
        )
