"""How large the bodies of requests may be, by what they are.

A body is bounded twice: in bytes, and in marks. Marks are the characters `,`, `:`, `[` and `{`, wherever they stand. Each value of a JSON
document needs one, so their number bounds how many objects a body can become, and counting them costs next to nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1024


@dataclass(frozen=True, slots=True)
class BodyBounds:
    """The most bytes and marks of a body."""

    most_bytes: int
    most_marks: int


LARGEST_REPORT_BYTES = 1024 * _KIB
"""The largest report of a merge that a task can make, rounded up to whole MiB.

A task of 10,000 inputs (the default of `self-optimizing.max-file-count`) reads at most 128 MiB, so how many files it writes depends on the
table's target size. The smallest one that this bound is made for is 1 MiB: then at most 1,024 data files of more than a fragment stay and
get a position delete each, and 128 new data files are written. With paths of 180 characters and 100 columns such a report, without
what a footer tells (sizes, counts, bounds and split offsets), has 0.86 MB. `test_body_bounds.py` measures it.
"""
REPORT = BodyBounds(4 * LARGEST_REPORT_BYTES, 240_000)
COMMIT_REPORT = BodyBounds(512 * _KIB, 20_000)
"""`compaction_pipeline.reports` cuts its reports to this size."""
TOUCH = BodyBounds(256 * _KIB, 10_000)
"""It names each running attempt, and says of each what it has used: 7 marks for each of 1,024 slots."""
SITE_FILE = BodyBounds(1536 * _KIB, 50)
"""A file of 1 MiB in base64."""
OTHER = BodyBounds(64 * _KIB, 5_000)

MOST_ERRORS_TOLD = 20
"""An answer tells at most so many of the errors of a body."""


def marks_in(body: bytes) -> int:
    """Return how many marks a body has."""
    return sum(body.count(mark) for mark in (b",", b":", b"[", b"{"))
