"""Writes a flame graph of a running optimizer with py-spy, which looks at processes from outside: nothing in them runs differently.

Whoever may not look, or has no py-spy, gets a line in the log instead, and the optimizer goes on.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import printable

log = logging.getLogger(__name__)

_WRITTEN_SECONDS = 30
"""py-spy gets this long to draw the graph when the optimizer ends."""
_MOST_LINES = 20
_MAY_NOT_LOOK = ("permission denied", "operation not permitted", "requires root")


@contextmanager
def profiled(file: Path | None, folders: str | None = None) -> Iterator[None]:
    """Write a flame graph of this process and of its Python workers into `file` when the block ends; None does nothing.

    py-spy is looked for in these folders, which are separated as on a PATH; None stands for those of Python's scripts and for the PATH.
    Raises ConfigError when the file cannot be written.
    """
    if file is None:
        yield
        return
    _check_writable(file)
    profiler = _started(file, folders or f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ.get('PATH', '')}")
    if profiler is None:
        file.unlink()
        yield
        return
    watch = threading.Thread(target=_watch, args=(profiler,), name="profiler", daemon=True)
    watch.start()
    try:
        yield
    finally:
        _end(profiler, file)
        watch.join(_WRITTEN_SECONDS)


def _check_writable(file: Path) -> None:
    try:
        file.write_bytes(b"")
    except OSError as error:
        raise ConfigError(
            f"--profile is {file}, which cannot be written ({error.strerror}); give a file in a folder that exists"
        ) from error


def _started(file: Path, folders: str) -> subprocess.Popen[str] | None:
    program = shutil.which("py-spy", path=folders)
    if program is None:
        log.warning("no profile is written: py-spy is not installed; pip install 'compaction-pipeline[profile]' brings it")
        return None
    # Spark's workers merge, and are processes of their own.
    options = ["record", "--pid", str(os.getpid()), "--subprocesses", "--format", "flamegraph", "--output", str(file)]
    # In a session of its own, it does not get the Ctrl-C of the terminal, after which the optimizer still works for a while.
    return subprocess.Popen(
        [program, *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _watch(profiler: subprocess.Popen[str]) -> None:
    """Say why py-spy ended, when it failed."""
    assert profiler.stderr is not None
    said: list[str] = []
    # Everything is read, because py-spy waits when nobody does. It also writes of each worker that ended while it looked.
    for line in profiler.stderr:
        if len(said) < _MOST_LINES and line.strip():
            said.append(line.strip())
    if profiler.wait() == 0:
        return
    first = said[0] if said else f"exit code {profiler.returncode}"
    if any(words in line.lower() for line in said for words in _MAY_NOT_LOOK):
        advice = "it may not look into this process: run as root, give the container CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"
    else:
        advice = "the optimizer goes on without"
    log.warning("no profile is written: py-spy said %r; %s", printable(first, 200), advice)


def _end(profiler: subprocess.Popen[str], file: Path) -> None:
    # This does nothing when it has ended.
    profiler.send_signal(signal.SIGINT)
    try:
        profiler.wait(_WRITTEN_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("py-spy has not drawn the profile within %s s, so it is ended", _WRITTEN_SECONDS)
        profiler.kill()
    if file.stat().st_size:
        log.info("the profile is in %s", file)
    else:
        # It was only made to see that it can be.
        file.unlink()
