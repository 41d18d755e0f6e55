"""What a Spark session is and can do, found out from the session itself. A project may give us one that no setting of ours describes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

log = logging.getLogger(__name__)

_CONNECT_MODULES = "pyspark.sql.connect."
_CONNECT_SLOTS = 16
"""A server of Spark Connect does not tell how many cores it has, unless its configuration names a parallelism."""

_applications: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_gc: WeakKeyDictionary[Any, tuple[float, float]] = WeakKeyDictionary()
_gc_asked: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
_GC_ASKED_EVERY = 30.0
_shipped: WeakSet[Any] = WeakSet()
"""The contexts and Connect sessions whose workers have our package."""


def is_connect(session: Any) -> bool:
    """Whether this session is a client of Spark Connect. Such a session has no `sparkContext`."""
    # Importing the class would import grpc, which a classic session does not need.
    return any(kind.__module__.startswith(_CONNECT_MODULES) for kind in type(session).__mro__)


def is_alive(session: Any) -> bool:
    """Whether the session can still run jobs."""
    if is_connect(session):
        return not getattr(session, "is_stopped", False)
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        # The JVM is gone: it was killed, or ran out of memory. Its gateway answers with various errors.
        return False


def slots_of(session: Any) -> int:
    """The number of tasks that Spark runs at a time."""
    if is_connect(session):
        return int(session.conf.get("spark.default.parallelism", None) or _CONNECT_SLOTS)
    return int(session.sparkContext.defaultParallelism)


def application_of(session: Any) -> str:
    """The id of the session's application, by which Spark's pages and logs name it. A client of Spark Connect only knows its session's."""
    return f"Connect session {session.session_id}" if is_connect(session) else f"application {session.sparkContext.applicationId}"


def note_application(session: Any) -> None:
    """Ask Spark once for the id of the application that the session's jobs run in."""
    if session in _applications:
        return
    try:
        asked = session.conf.get("spark.app.id", "") if is_connect(session) else session.sparkContext.applicationId
    except Exception as error:
        # The JVM is gone, or a server of Spark Connect does not answer. The next merge finds out, and asks again.
        log.info("Spark does not tell the id of its application: %s", error)
        return
    _applications[session] = str(asked or "")


def application_id_of(session: Any) -> str:
    """The id of that application; "" while Spark has not told it.

    Nothing is asked, because heartbeats tell the id: a client of Spark Connect waits minutes for a server that is gone.
    """
    return _applications.get(session, "")


def note_gc(session: Any, now: float) -> None:
    """Ask the JVM of the driver for how long it has collected garbage, unless somebody asked it a moment ago. `now` is in seconds."""
    if is_connect(session) or now - _gc_asked.get(session, -_GC_ASKED_EVERY) < _GC_ASKED_EVERY:
        return
    _gc_asked[session] = now
    try:
        factory = session.sparkContext._jvm.java.lang.management.ManagementFactory
        collected = sum(max(0, int(bean.getCollectionTime())) for bean in factory.getGarbageCollectorMXBeans())
        _gc[session] = collected / 1000, int(factory.getRuntimeMXBean().getUptime()) / 1000
    except Exception as error:
        # The JVM is gone. The next merge finds out.
        log.info("Spark does not tell how long it has collected garbage: %s", error)


def gc_of(session: Any) -> tuple[float, float] | None:
    """The seconds of collections, and those since the JVM started, when it was last asked; None when it has told nothing.

    Nothing is asked, because heartbeats tell it, and a JVM that hangs must not hold them.
    """
    return _gc.get(session)


def runs_here(session: Any) -> bool:
    """Whether the workers are processes of this machine that import what this interpreter imports."""
    return not is_connect(session) and str(session.sparkContext.master).split("[")[0] == "local"


def ship(session: Any, archive: Path) -> None:
    """Send the zip file of our package to the workers of this session, unless they have it."""
    target = session if is_connect(session) else session.sparkContext
    if target in _shipped:
        return
    if is_connect(session):
        session.addArtifacts(str(archive), pyfile=True)
    else:
        session.sparkContext.addPyFile(str(archive))
    _shipped.add(target)
