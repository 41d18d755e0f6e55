"""The `TaskQueue` of a worker on another host: it asks the server over HTTP."""

from __future__ import annotations

import logging
import ssl
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode, urlsplit

import requests
from pydantic import TypeAdapter
from requests.exceptions import InvalidHeader
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from compaction_pipeline.core.errors import CompactionError, ConfigError, MergeRefused, NotFoundError, StaleAttempt, StorageUnavailable
from compaction_pipeline.core.ids import AttemptId, TaskId
from compaction_pipeline.core.queue.application import application_id
from compaction_pipeline.core.queue.assignment import Assignment, EndedAttempt
from compaction_pipeline.core.queue.optimizer import LONGEST_WHY, Registration
from compaction_pipeline.core.queue.task import CompactionTask, TaskStatus
from compaction_pipeline.core.tables.data_file import NOT_TOLD
from compaction_pipeline.core.words import duration_text
from compaction_pipeline.core.work.ends import EndReason
from compaction_pipeline.core.work.result import MergeResult, UsedSoFar
from compaction_pipeline.optimizer.inspection import Inspection
from compaction_pipeline.optimizer.slot_clock import SlotClock

log = logging.getLogger(__name__)

_TOLD_EVERY_SECONDS = 60.0
"""While the server is away, the log says so this often."""
_TIMEOUT = (5, 30)
_ASSIGNMENTS: TypeAdapter[Sequence[Assignment]] = TypeAdapter(Sequence[Assignment])
_RESULT: TypeAdapter[MergeResult] = TypeAdapter(MergeResult)
_ERRORS: dict[int, type[CompactionError]] = {
    **dict.fromkeys((400, 408, 413, 415), ConfigError),
    404: NotFoundError,
    409: StaleAttempt,
    422: MergeRefused,
}


_NO_PAGE = "there is no such page"
"""So begins the answer of the service to a path that it does not have."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an optimizer waits for its server."""

    poll_seconds: float = 5.0
    """The server holds a poll for this long when no task waits. A task that comes meanwhile is answered at once."""
    pause_seconds: float = 2.0
    """Between two polls of a server that does not answer, and between two looks at a report that the server still compares."""
    report_seconds: float = 120
    """A report that cannot be delivered is tried again for this long. After that the attempt is no longer named, so the server
    takes the task back at the next heartbeat, or when the lease ends."""


class HttpTaskQueue:
    """A `TaskQueue` over HTTP. `register` comes first. The slots of one worker may use it at once.

    It survives a restart of the server: a poll that is not answered finds nothing, and an optimizer that the server no longer knows
    registers anew.
    """

    def __init__(self, url: str, token: str, registration: Registration, ca_file: str | None = None, pace: Pace = Pace()) -> None:
        """`url` is the server's, without a path. `ca_file` holds the certificates, in PEM, that are trusted beside those of the system.

        Raises ConfigError for a text that is no such URL.
        """
        _check_url(url)
        self._away_since: float | None = None
        self._told_at = 0.0
        self._url = f"{url.rstrip('/')}/api/v1"
        self._token = token
        self._pace = pace
        self._registration = registration
        self._session = requests.Session()
        self._session.trust_env = False
        if ca_file is not None:
            self._session.verify = _certificates(ca_file)
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._polling = threading.Lock()
        self._optimizer_id = ""
        self._own_token = ""
        self._fetched: deque[Assignment] = deque()
        self._running: set[AttemptId] = set()
        self._lost: set[AttemptId] = set()
        self._used: dict[AttemptId, UsedSoFar] = {}
        self._tells_used = True
        self._slots = SlotClock(registration.parallelism)
        self._poll_id = _new_poll_id()
        self._inspection = Inspection()
        self._refused: ConfigError | None = None
        self.drains = threading.Event()
        """This is set when no further task is to be taken, because the server or a person asked for it."""
        self.why_drains = ""
        self.application: Callable[[], str] = lambda: ""
        """Returns the id of the Spark application in which this optimizer merges; "" while there is none. Heartbeats tell it."""
        self.driver_gc: Callable[[], tuple[float, float] | None] = lambda: None
        """Returns for how long the JVM of its Spark driver has collected garbage, and how long it has run; None while nobody knows."""

    @property
    def optimizer_id(self) -> str:
        """The id that the server gave; "" before `register`."""
        return self._optimizer_id

    def register(self) -> None:
        """Register with the server. Raises ConfigError when it refuses this optimizer, StorageUnavailable when it does not answer."""
        answer = self._asked("POST", "/optimizers", asdict(self._registration), token=self._token)
        with self._lock:
            self._optimizer_id, self._own_token = answer["optimizer_id"], answer["token"]
            # The attempts of the former registration have lost their tasks. Those that run now are to be stopped.
            self._lost = self._running.difference(assignment.attempt_id for assignment in self._fetched)
            self._fetched.clear()
            self._running.clear()
            self._used.clear()
            # A registration is a new life, whose totals begin at 0.
            self._slots = SlotClock(self._registration.parallelism)
        log.info("registered as %s in group %s", self._optimizer_id, self._registration.group)

    def touch(self) -> None:
        """Say that this optimizer is there, and learn which attempts it has lost.

        Raises StorageUnavailable, and ConfigError when the server takes nothing from this optimizer any more: all attempts are lost then.
        """
        with self._lock:
            optimizer_id, running, slots = self._optimizer_id, sorted(self._running), self._slots.totals()
            used = {str(attempt): asdict(self._used[attempt]) for attempt in running if attempt in self._used and self._tells_used}
        try:
            application = application_id(self.application())
            body = {"running": running, "held_seconds": slots.held, "idle_seconds": slots.idle}
            body |= {"application": application} if application else {}
            collected = self.driver_gc()
            body |= {} if collected is None else {"driver_gc_seconds": collected[0], "driver_up_seconds": collected[1]}
            answer = self._touched(f"/optimizers/{optimizer_id}/touch", body, used)
        except NotFoundError as error:
            self._anew(optimizer_id, error)
            return
        except ConfigError as error:
            with self._lock:
                self._refused = error
                self._lost.update(self._running)
            raise
        with self._lock:
            self._lost.update(AttemptId(attempt) for attempt in answer["lost"])
        self._inspection.heard(answer)
        if answer["drain"]:
            self.drain(answer["why"])

    def _touched(self, path: str, body: dict[str, Any], used: Mapping[str, Any]) -> Any:
        """Send a heartbeat. A server of an earlier release refuses one that tells what attempts use, and takes only short ones. So it gets
        another one without."""
        if not used:
            return self._asked("POST", path, body)
        try:
            return self._asked("POST", path, {**body, "used": used})
        except (MergeRefused, ConfigError) as error:
            refused = error
        # When the first one was refused for another reason, this one is refused too.
        answer = self._asked("POST", path, body)
        log.info("optimizer %s no longer tells what its running attempts use: %s", self._optimizer_id, refused)
        self._tells_used = False
        return answer

    def drain(self, why: str) -> None:
        """Take no further task."""
        self.why_drains = self.why_drains or why
        self.drains.set()
        with self._lock:
            # Nobody begins these any more. The server hands them back when they are not named.
            self._running.difference_update(assignment.attempt_id for assignment in self._fetched)
            self._fetched.clear()
            self._slots.holds(len(self._running))
            self._slots.polls(False)

    def waits(self, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> bool:
        """Return whether a task can be taken now. The server may already have claimed it for this optimizer.

        Raises ConfigError when the server takes nothing from this optimizer any more.
        """
        if self._refused is not None:
            raise self._refused
        # The server keeps the answer to the last poll only, so the slots poll one after the other.
        with self._polling:
            return bool(self._fetched) or (not self.drains.is_set() and self._fetch())

    def _fetch(self) -> bool:
        """Poll the server once, and return whether it gave a task."""
        optimizer_id = self._optimizer_id
        with self._lock:
            self._slots.polls(not self.drains.is_set())
        body = {"poll_id": self._poll_id, "free_slots": 1, "wait_seconds": self._pace.poll_seconds}
        try:
            response = self._send("POST", f"/optimizers/{optimizer_id}/poll", body)
        except NotFoundError as error:
            self._anew(optimizer_id, error)
            return False
        except StorageUnavailable as error:
            # The same poll id is sent again: if the answer was lost, the server repeats it.
            self._note_away(error)
            self.drains.wait(self._pace.pause_seconds)
            return False
        self._note_back()
        self._poll_id = _new_poll_id()
        taken = _ASSIGNMENTS.validate_json(response.content)
        with self._lock:
            if self.drains.is_set():
                # Nobody begins these any more. The server hands them back, because no heartbeat names them.
                return False
            self._fetched.extend(taken)
            self._running.update(assignment.attempt_id for assignment in taken)
            self._slots.holds(len(self._running))
        return bool(taken)

    def _note_away(self, error: StorageUnavailable) -> None:
        """Log that the server gives no tasks: at once, and then once a minute."""
        now = time.monotonic()
        if self._away_since is None:
            self._away_since, self._told_at = now, now
            log.warning("no task taken, tried again until the server answers: %s", error)
        elif now - self._told_at >= _TOLD_EVERY_SECONDS:
            self._told_at = now
            log.warning("no task taken for %s: %s", duration_text(timedelta(seconds=now - self._away_since)), error)

    def _note_back(self) -> None:
        if self._away_since is not None:
            away, self._away_since = time.monotonic() - self._away_since, None
            log.info("the server answers again, after %s", duration_text(timedelta(seconds=away)))

    def poll(self, owner: str, queue: str | None, task_ids: Sequence[TaskId] | None = None) -> Assignment | EndedAttempt | None:
        with self._lock:
            return self._fetched.popleft() if self._fetched else None

    def renew(self, attempt_ids: Sequence[AttemptId], used: Mapping[AttemptId, UsedSoFar] | None = None) -> Sequence[AttemptId]:
        # `touch` renews the leases of all attempts at once, and tells what they have used; here is what it learned.
        with self._lock:
            self._used.update(used or {})
            return tuple(attempt for attempt in attempt_ids if attempt not in self._lost)

    def complete(self, task: CompactionTask, result: MergeResult) -> TaskStatus:
        body = _body(result)
        path = f"/attempts/{result.attempt_id}/complete"
        patient = Retrying(
            retry=retry_if_exception_type(StorageUnavailable),
            stop=stop_after_delay(self._pace.report_seconds),
            wait=wait_random_exponential(multiplier=0.5, max=10),
            reraise=True,
        )
        try:
            while True:
                status = TaskStatus(patient(self._asked, "POST", path, body)["status"])
                if status is not TaskStatus.EXECUTING:
                    return status
                # The server compares the rows of the report. Heartbeats keep the attempt alive meanwhile.
                time.sleep(self._pace.pause_seconds)
        except ConfigError as error:
            # The server cannot read the report, so it would never learn of the end. A short report of a failure may still be read.
            failure = MergeResult(result.task_id, result.attempt_id, error=f"the server could not read the report: {error}")
            log.error("table=%s task=%s attempt=%s %s", task.table, task.task_id, result.attempt_id, failure.error)
            return self._failed(path, failure)
        except StorageUnavailable as error:
            tried = duration_text(timedelta(seconds=self._pace.report_seconds))
            raise StorageUnavailable(
                f"the report is let go, because it could not be delivered within {tried}: {error}. "
                "If the server did not get it, the task's lease ends, and the task is tried again"
            ) from error
        except (MergeRefused, NotFoundError) as error:
            raise StaleAttempt(f"the server did not take the report: {error}") from error
        finally:
            with self._lock:
                self._running.discard(result.attempt_id)
                self._lost.discard(result.attempt_id)
                self._used.pop(result.attempt_id, None)
                self._slots.holds(len(self._running))

    def _failed(self, path: str, failure: MergeResult) -> TaskStatus:
        try:
            return TaskStatus(self._asked("POST", path, _body(failure))["status"])
        except (MergeRefused, NotFoundError, ConfigError) as error:
            raise StaleAttempt(f"the server did not take the report: {error}") from error

    def give_back(self, owner: str, end_reason: EndReason, reason: str) -> None:
        self.drain(reason)
        with suppress(CompactionError):
            # The ledger learns what the slots did until now.
            self.touch()
        try:
            failed = end_reason not in (EndReason.INTERRUPTED, EndReason.LOST)
            query = urlencode({"failed": "true", "why": reason[:LONGEST_WHY]}) if failed else ""
            self._send("DELETE", f"/optimizers/{self._optimizer_id}{'?' * bool(query)}{query}")
        except CompactionError as error:
            log.warning("%s has not said goodbye, so its leases end by themselves: %s", self._optimizer_id, error)

    def _anew(self, optimizer_id: str, error: CompactionError) -> None:
        """Register anew, once for all slots."""
        with self._registering:
            if self._optimizer_id != optimizer_id or self.drains.is_set():
                return
            log.warning("%s registers anew: %s", optimizer_id, error)
            try:
                self.register()
            except StorageUnavailable as failure:
                log.warning("not registered: %s", failure)

    def _asked(self, method: str, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> Any:
        return self._send(method, path, body, token).json()

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None, token: str | None = None) -> requests.Response:
        headers = {"Authorization": f"Bearer {token or self._own_token}"}
        try:
            response = self._session.request(method, self._url + path, json=body, headers=headers, timeout=_TIMEOUT, allow_redirects=False)
        except requests.RequestException as error:
            raise StorageUnavailable(
                f"server {self._url} did not answer: {_why(error)}; see that it runs, and that the URL is right"
            ) from error
        if response.ok:
            return response
        detail = _detail(response)
        if response.status_code == 401:
            raise ConfigError(
                f"server {self._url} does not accept the token: it does not know it, or somebody revoked it. Issue one there with "
                "`compaction-pipeline token add --role optimizer`, and name its file with --token-file"
            )
        if response.status_code == 403:
            raise ConfigError(f"server {self._url} does not accept the token: {detail}")
        if response.status_code == 404 and (detail == "Not Found" or detail.startswith(_NO_PAGE)):
            # Answers about things that do not exist say what is missing. This one knows not even the path.
            detail = f"{_NO_PAGE}; see that the URL names the host and the port of `compaction-pipeline serve`, and no path"
        kind = _ERRORS.get(response.status_code, StorageUnavailable)
        raise kind(f"server {self._url} answered {response.status_code}: {detail}")


def _body(result: MergeResult) -> dict[str, Any]:
    """The report of a result, as JSON. What the footers of its files tell is no part of it: the server reads them."""
    body: dict[str, Any] = _RESULT.dump_python(result, mode="json", exclude={"outputs": {"__all__": NOT_TOLD}})
    return body


def _certificates(path: str) -> str:
    """The path of a file with certificates in PEM. Raises ConfigError for another file."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"--ca-file is {path!r} but must be a file with certificates in PEM; give such a file ({why})") from error
    return path


def _check_url(url: str) -> None:
    if "@" in url:
        # What stands before the sign may be a password, so the message does not repeat the URL.
        raise ConfigError("--server has a user or a password before '@' but must be a URL without; the token in --token-file is the login")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ConfigError(f"--server is {url!r} but must be a URL, for example http://127.0.0.1:8787")


def _why(error: requests.RequestException) -> str:
    """The last part of a library's message, which says what happened."""
    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT[1]} s"
    if isinstance(error, InvalidHeader):
        # The library's text repeats the header, and the header has the token.
        return "the token has characters that no token has"
    cause = error.args[0] if error.args else error
    reason = getattr(cause, "reason", cause)
    tls = next((one for one in (reason, *getattr(reason, "args", ())) if isinstance(one, ssl.SSLError) and one.reason), None)
    if tls is not None:
        hint = ", which --ca-file may mend: give the certificate of the server or of its authority" if "VERIFY" in tls.reason else ""
        return f"TLS failed: {tls.reason.replace('_', ' ').lower()}{hint}"
    return str(reason).rpartition(": ")[2] or type(error).__name__


def _detail(response: requests.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:200] or response.reason


def _new_poll_id() -> str:
    return uuid.uuid4().hex
