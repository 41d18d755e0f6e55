"""The ends of attempts and of tasks."""

from __future__ import annotations

from enum import Enum


class EndReason(str, Enum):
    """Why an attempt or a task ended. Programs decide by this value; the text beside it is for people only."""

    # Ends of attempts. A task whose attempts are used up keeps the reason of the last one.

    MERGED = "MERGED"
    FAILED = "FAILED"
    # The content of the files breaks a rule or is not supported, so no further attempt can merge them.
    REFUSED = "REFUSED"
    # Two looks found a file of the task absent, so another attempt would fail too.
    FILE_GONE = "FILE_GONE"
    # The store denied the process access. This is no fault of the task.
    NO_ACCESS = "NO_ACCESS"
    # The credentials that the catalog gave for the task ended while it was merged.
    CREDENTIALS_ENDED = "CREDENTIALS_ENDED"
    # The rows to write differed from the rows that were read. No output is used, and a check in Dagster stays red.
    DIGEST_MISMATCH = "DIGEST_MISMATCH"
    # The report of the attempt cannot be true. No output is used, and the task goes to another worker.
    REPORT_REFUSED = "REPORT_REFUSED"
    # The holder did not renew the lease of the attempt, or an optimizer no longer names the attempt.
    LOST = "LOST"
    # The attempt took longer than an attempt may take, although its holder renewed the lease.
    TIMED_OUT = "TIMED_OUT"
    # The process was told to end, or the answer to an optimizer's poll did not arrive.
    INTERRUPTED = "INTERRUPTED"

    # Ends of tasks that no attempt decides.

    # The commit found that the table had changed. The node is planned again at once.
    CONFLICT = "CONFLICT"
    # A newer plan took the task's files.
    REPLACED = "REPLACED"
    # A data file of the task was no longer part of the table when the task was to be tried again. The node is judged again.
    OUTDATED = "OUTDATED"
    # The process that planned the task ended before anybody began it, or a person canceled the task.
    GIVEN_UP = "GIVEN_UP"
