"""The processes of optimizers on this host. They outlive the process that started them, and are found by their resource id.

A resource id is random and is an argument of the process. So a process is found after a restart of the server too, and no other process is
taken for it, as might happen with the number of a process.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from compaction_pipeline.core.errors import StorageUnavailable
from compaction_pipeline.core.insight.masking import masked_text
from compaction_pipeline.ending.process_table import ProcessEntry, command_of, process_table

MOST_LOGS = 200
"""So many logs of optimizers are kept with their files of Spark properties, the newest ones."""
_RESOURCE = re.compile(r"--resource-id (\S+)")
_LONGEST_WORDS = 300
_TAIL_BYTES = 8_192


class OptimizerProcesses:
    """The processes, and their logs in one folder."""

    def __init__(self, folder: Path, command_of: Callable[[int], str] = command_of) -> None:
        """`folder` holds the logs. It is made when it is needed. `command_of` tells the arguments of a process; "" for none."""
        self.folder = folder
        self._command_of = command_of
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, resource_id: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start a process in a session of its own, which writes into a log of its own. Raises StorageUnavailable."""
        self._reap()
        try:
            self.make_folder()
            self._drop_old_logs()
            log = os.open(self._log(resource_id), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            try:
                child = subprocess.Popen(
                    list(command),
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C at the server's terminal does not reach it.
                    start_new_session=True,
                )
            finally:
                os.close(log)
        except (OSError, ValueError) as error:
            # Python raises ValueError for a variable or an argument that no process can have.
            raise StorageUnavailable(f"optimizer {resource_id} cannot be started: {error}") from error
        self._children.append((resource_id, child))

    def running(self) -> frozenset[str]:
        """The resource ids that processes of this host have."""
        self._reap()
        return frozenset(self._resources(process_table()))

    def stop(self, resource_id: str) -> None:
        """End the processes of this resource id, and what they have started, at once."""
        table = process_table()
        found = self._resources(table).get(resource_id, [])
        sessions = {entry.session or entry.group for entry in found} - {os.getsid(0)}
        members = {entry.pid for entry in table if not entry.ended and (entry.session or entry.group) in sessions}
        for pid in members | {entry.pid for entry in found}:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def last_words(self, resource_id: str) -> str:
        """The last line of a log, without passwords in URLs; "" when there is none. Readers see it, but not the log."""
        try:
            with self._log(resource_id).open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            return ""
        return next((masked_text(line.strip())[:_LONGEST_WORDS] for line in reversed(lines) if line.strip()), "")

    def make_folder(self) -> None:
        """Make the folder, which only its owner may enter."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _log(self, resource_id: str) -> Path:
        return self.folder / f"{resource_id}.log"

    def _drop_old_logs(self) -> None:
        oldest_first = sorted((path.stat().st_mtime, path) for path in self.folder.glob("*.log"))
        for _, path in oldest_first[: max(0, len(oldest_first) - MOST_LOGS + 1)]:
            path.unlink(missing_ok=True)
            properties_file(self.folder, path.stem).unlink(missing_ok=True)

    def _reap(self) -> None:
        # A child that has ended stays in the process table until its parent asks for its exit code.
        self._children = [(resource_id, child) for resource_id, child in self._children if child.poll() is None]

    def _resources(self, table: Sequence[ProcessEntry]) -> Mapping[str, list[ProcessEntry]]:
        """The processes by resource id."""
        # A process that began just now may not show its arguments yet. Those of this process are known without them.
        own = {child.pid: resource_id for resource_id, child in self._children}
        found: dict[str, list[ProcessEntry]] = {}
        for entry in table:
            match = None if entry.ended else _RESOURCE.search(self._command_of(entry.pid))
            resource_id = match[1] if match is not None else None if entry.ended else own.get(entry.pid)
            if resource_id is not None:
                found.setdefault(resource_id, []).append(entry)
        return found


def properties_file(folder: Path, resource_id: str) -> Path:
    """The file of the Spark properties of an optimizer, beside its log."""
    return folder / f"{resource_id}.conf"
