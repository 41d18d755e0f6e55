"""Reports commits to the HTTP service.

A report is a hint: without it the table is looked at a little later. So a report that cannot be delivered never ends the writer's own work,
unless the writer asks for that.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from compaction_pipeline.reports.door import Door, ReportError

log = logging.getLogger(__name__)

MOST_PARTITIONS = 1_000
"""The server takes so many partitions with one report."""
MOST_BYTES = 512 * 1024
"""The server takes a report of this size. Of a larger one, the partitions with the fewest files are left out."""


@dataclass(frozen=True)
class Answer:
    """`accepted` is false when the server knows the commit already. `why` is a sentence for people."""

    accepted: bool
    why: str


class CommitReporter:
    """Reports commits to one server. Several threads may use it at once."""

    def __init__(
        self, server: str, token: str, *, ca_file: str | None = None, tries: int = 4, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """`server` is the URL without a path, and `token` has the role writer. The certificates in `ca_file`, in PEM, are trusted.

        A report is tried at most `tries` times. When the server does not answer, that takes a minute and a half at most.
        """
        self._door = Door(server, token, ca_file=ca_file, tries=tries, sleep=sleep)

    def report_commit(
        self,
        table: str,
        snapshot_id: int,
        sequence_number: int = 0,
        added: Mapping[str, int] | None = None,
        *,
        must_arrive: bool = False,
    ) -> Answer | None:
        """Report that a commit has landed. Return the server's answer, or None when the report did not arrive.

        `table` is `catalog.namespace.table`. Its catalog is named as it is registered with the server. `added` is how many files the commit
        added to each partition, e.g. `{"day=2026-11-22": 12}`, or `{"": 12}` without partitions.

        With `must_arrive`, a report that did not arrive raises ReportError. Without it, the log gets a warning.
        """
        try:
            body = _body(snapshot_id, sequence_number, added or {})
            answer = self._door.send(f"/api/v1/tables/{quote(table, safe='')}/commits", body)
            return Answer(bool(answer["accepted"]), str(answer["why"]))
        except Exception as error:
            # Whatever went wrong: a hint must not end the work of the writer that gives it.
            if must_arrive:
                raise error if isinstance(error, ReportError) else ReportError(f"the report was not delivered: {error}") from error
            log.warning("commit %s of table %s not reported: %s", snapshot_id, table, error)
            return None


def _body(snapshot_id: int, sequence_number: int, added: Mapping[str, int]) -> bytes:
    """Return a report in JSON, with as many of the partitions that got the most files as the server takes."""
    largest = sorted(added.items(), key=lambda item: -item[1])[:MOST_PARTITIONS]
    while True:
        told = [{"partition": partition, "files": files} for partition, files in largest]
        body = json.dumps({"snapshot_id": snapshot_id, "sequence_number": sequence_number, "added": told}).encode()
        if len(body) <= MOST_BYTES:
            return body
        # Names have different lengths, so how many fit is found by trying.
        largest = largest[: len(largest) * 9 // 10]
