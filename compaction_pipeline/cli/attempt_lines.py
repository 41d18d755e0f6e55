"""Tells people where the attempts of a task ran, and what they have used."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.text import Text

from compaction_pipeline.core.capacity.ledger import UNKNOWN
from compaction_pipeline.core.queue.task import TaskAttempt
from compaction_pipeline.core.words import bytes_text


def applications_lines(attempts: Iterable[TaskAttempt], page: Callable[[str], str | None]) -> list[Text]:
    """The Spark application of each attempt that has one, as its worker says, with its page where one is known."""
    ran = {each.number: (each.application, page(each.application)) for each in attempts if each.application}
    return [Text(f"attempt {number} ran in Spark application {name}{f': {url}' if url else ''}") for number, (name, url) in ran.items()]


def used_lines(attempts: Iterable[TaskAttempt]) -> list[Text]:
    """What each attempt has used, where anything is known of it."""
    lines = []
    for each in attempts:
        used = each.used or UNKNOWN
        cpu = "" if used.cpu_seconds is None else f"{used.cpu_seconds:.1f} s of CPU"
        peak = "" if used.peak_memory_bytes is None else f"at most {bytes_text(used.peak_memory_bytes)} of memory"
        if cpu or peak:
            until = " until now" if each.ended_at is None else ""
            cut = ", after its worker told more than is possible" if used.is_cut else ""
            lines.append(Text(f"attempt {each.number} used {' and '.join(filter(None, (cpu, peak)))}{until}{cut}"))
    return lines
