"""Repeats an attempt while the store is busy, and reads a file a second time before it is called lost or damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from compaction_pipeline.core.errors import FileGone, FileUnreadable, MergeFailed, StoreBusy
from compaction_pipeline.merging.reading.file_access import FileAccess

TRIES = 8
LONGEST_SECONDS = 180.0
"""No try begins later than this after the first one. Pauses between tries are random; their upper limit doubles up to 30 s."""
_LONGEST_PAUSE_SECONDS = 30.0

_Result = TypeVar("_Result")


def patiently(work: Callable[[], _Result], files: FileAccess, sleep: Callable[[float], None]) -> _Result:
    """Do the work, and do it again while the store is busy. What a try has written is deleted before the next try.

    Passes on the MergeFailed that the work raises. FileUnreadable becomes FileGone, or MergeFailed with the advice to restore or delete
    the file, only after a second look.
    """

    def once() -> _Result:
        try:
            return work()
        except FileUnreadable as first:
            raise _after_second_look(first, files) from first

    def clear(state: RetryCallState) -> None:
        files.delete_written()

    retrying = Retrying(
        retry=retry_if_exception_type(StoreBusy),
        stop=stop_after_attempt(TRIES) | stop_after_delay(LONGEST_SECONDS),
        wait=wait_random_exponential(multiplier=1, max=_LONGEST_PAUSE_SECONDS),
        sleep=sleep,
        before_sleep=clear,
        reraise=True,
    )
    return retrying(once)


def _after_second_look(first: FileUnreadable, files: FileAccess) -> MergeFailed:
    try:
        files.look_again(first.path)
    except FileUnreadable as second:
        kind = FileGone if second.absent else MergeFailed
        return kind(f"{second}; {second.advice}")
    except MergeFailed as other:
        return other
    return StoreBusy(f"{first}, but a second look found the file sound: it is read again")
