"""The pictures that Dagster shows: how many files tables hold over time, the worst tables, the work under way, and before → after.

Pure: numbers and names go in, and Markdown comes out. Each picture comes in as much detail as fits into the characters that Dagster
shows at once. With `whole` it comes in full, and larger.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from compaction_pipeline.core.insight.files_over_time import FilesPoint
from compaction_pipeline.core.insight.node_change import FileGroup
from compaction_pipeline.core.words import bytes_text, count_text
from compaction_pipeline.defs.markdown import fitting, image, wrapped
from compaction_pipeline.defs.svg import BLUE, GREY, ORANGE, PURPLE, RED, bars, fitted, line, picture, text_width, words_at

WIDTH = 365
"""In a window of 1,400 pixels, the column of values in Dagster's metadata is about 370 pixels wide."""
_RECORD_WIDTH = 320
"""Beside the long names of a record's figures, it is about 320 pixels wide."""

_ROW = 18
_GAP = 6
_MIDDLE = 9


@dataclass(frozen=True, slots=True)
class TableBar:
    """What is wrong with one table: its small data files, and its delete files of both kinds."""

    name: str
    small_data_files: int
    equality_deletes: int
    position_deletes: int

    @property
    def files(self) -> int:
        """All files that the bar shows."""
        return self.small_data_files + self.equality_deletes + self.position_deletes


def files_over_time(points: Sequence[FilesPoint], now: datetime, *, whole: bool = False) -> str:
    """The number of files over time beside what it would be without us, from the first point until now."""
    if not points:
        return "No table was read yet."
    width, height = (900, 220) if whole else (WIDTH, 100)
    now = max(now, points[-1].at)
    caption = f"Without us: today's files and the {points[-1].merged_away:,} that our commits merged away (by the records that are kept)."

    def drawn(steps: int) -> str:
        return image(_over_time(points, now, width, height, steps), "files over time") + "\n\n" + (caption if whole else wrapped(caption))

    return drawn(240) if whole else fitting(drawn, (60, 48, 36, 30, 24, 18, 12, 8, 4, 2))


def worst_tables(tables: Iterable[TableBar], *, whole: bool = False) -> str:
    """The tables with small data files or delete files as bars, in the order given: the worst comes first."""
    worst = [table for table in tables if table.files]
    if not worst:
        return "No table has small data files or delete files."
    width = 900 if whole else WIDTH

    def drawn(rows: int) -> str:
        return image(_table_bars(worst[:rows], width, 56 if whole else 28), "the worst tables")

    return drawn(20) if whole else fitting(drawn, (8, 7, 6, 5, 4, 3, 2, 1))


def before_after(before: FileGroup, after: FileGroup) -> str:
    """The files before and after a compaction as two bars, each below its words."""
    most, has_deletes = max(before.files, after.files, 1), bool(before.delete_files or after.delete_files)
    parts = []
    for row, (word, group) in enumerate((("before", before), ("after", after))):
        y = 2 * row * _ROW
        data = _length(group.data_files, most, _RECORD_WIDTH)
        end = data + _length(group.delete_files, most, _RECORD_WIDTH)
        parts += [
            words_at(0, y + 13, f"{word}: {_files_text(group, has_deletes)}, {bytes_text(group.size_bytes)}"),
            bars([(0, y + _ROW + _MIDDLE, data)], BLUE),
            bars([(data, y + _ROW + _MIDDLE, end - data)], RED),
        ]
    return image(picture(_RECORD_WIDTH, 4 * _ROW + 2, parts), "files before and after")


def _files_text(group: FileGroup, has_deletes: bool) -> str:
    data = count_text(group.data_files, "data file")
    return f"{data}, {count_text(group.delete_files, 'delete file')}" if has_deletes else data


def running_now(waiting: int, merging: int, merged: int, tasks: Sequence[tuple[str, str]], *, whole: bool = False) -> str:
    """The queue as a bar, and two lines for each task that is merged now: its name, and its figures."""
    if not waiting + merging + merged:
        return "Nothing waits, and nothing is merged now."
    width = 900 if whole else WIDTH

    def drawn(rows: int) -> str:
        return image(_queue(waiting, merging, merged, tasks[:rows], width, len(tasks)), "the work under way")

    return drawn(20) if whole else fitting(drawn, (5, 4, 3, 2, 1, 0))


def _length(count: int, most: int, longest: int) -> int:
    """The length of a bar in pixels. A count above 0 is always visible."""
    return max(2, round(count * longest / most)) if count else 0


def _over_time(points: Sequence[FilesPoint], now: datetime, width: int, height: int, steps: int) -> str:
    top, bottom, right = 12, height - 22, width - 130
    most = max(1, *(max(point.files, point.without_us) for point in points))

    def level(files: int) -> int:
        return round(bottom - (bottom - top) * max(files, 0) / most)

    ours = _stairs(points, now, right, steps, lambda point: level(point.files))
    without = _stairs(points, now, right, steps, lambda point: level(point.without_us))
    last = points[-1]
    # The two numbers stand beside the ends of their lines, but at least a line of text apart.
    with_y = level(last.files) + 4
    without_y = min(level(last.without_us) + 4, with_y - 14)
    if without_y < top:
        with_y, without_y = max(with_y, top + 14), top
    return picture(
        width,
        height,
        [
            line(f"M0,{bottom + 1}H{right}", GREY),
            line(without, ORANGE, dashed=True),
            line(ours, BLUE),
            words_at(right + 6, without_y, f"{last.without_us:,} without us", ORANGE),
            words_at(right + 6, with_y, f"{last.files:,} {'file' if last.files == 1 else 'files'}", BLUE),
            words_at(0, height - 6, f"{points[0].at:%Y-%m-%d %H:%M} UTC"),
            words_at(right - 62, height - 6, f"{now:%H:%M} UTC"),
        ],
    )


def _stairs(points: Sequence[FilesPoint], now: datetime, right: int, steps: int, level: Callable[[FilesPoint], int]) -> str:
    """A path of at most `steps` steps. Between two points the number of files stays what it was."""
    times = [point.at for point in points]
    start, span = times[0], now - times[0]
    y = level(points[0])
    path = f"M0,{y}"
    for step in range(1, steps + 1):
        reached = level(points[max(0, bisect_right(times, start + span * (step / steps)) - 1)])
        if reached != y:
            path += f"H{round(right * step / steps)}V{reached}"
            y = reached
    return f"{path}H{right}"


def _table_bars(tables: Sequence[TableBar], width: int, letters: int) -> str:
    left = letters * 7
    most, longest = max(table.files for table in tables), width - left
    boxes: dict[str, list[tuple[int, int, int]]] = {ORANGE: [], RED: [], PURPLE: []}
    names = []
    for row, table in enumerate(tables):
        x, y = left, row * _ROW
        counts = (table.small_data_files, table.equality_deletes, table.position_deletes)
        for coloured, count in zip(boxes.values(), counts, strict=True):
            length = _length(count, most, longest)
            coloured.append((x, y + _MIDDLE, length))
            x += length
        number = f"{table.files:,} "
        names.append(words_at(0, y + 13, number + fitted(table.name, left - _GAP - text_width(number))))
    y = len(tables) * _ROW + 14
    legend = [words_at(0, y, "small files", ORANGE), words_at(70, y, "equality deletes", RED), words_at(178, y, "position deletes", PURPLE)]
    return picture(width, y + 6, [*(bars(drawn, colour) for colour, drawn in boxes.items()), *names, *legend])


def _queue(waiting: int, merging: int, merged: int, tasks: Sequence[tuple[str, str]], width: int, running: int) -> str:
    counts = ((waiting, GREY, "waiting"), (merging, BLUE, "merging"), (merged, PURPLE, "wait for the commit"))
    total, x, label = waiting + merging + merged, 0, 0
    parts = []
    for count, colour, word in counts:
        length = _length(count, total, width - 10)
        text = f"{count:,} {word}"
        parts += [bars([(x, _MIDDLE, length)], colour), words_at(label, 30, text, colour)]
        x += length
        label += 8 * len(text) + 8
    lines = [line for name, figures in tasks for line in (fitted(name, width - _GAP), f"   {figures}")]
    parts += [words_at(0, 48 + _ROW * row, line) for row, line in enumerate(lines)]
    rows = len(lines)
    if len(tasks) < running:
        parts.append(words_at(0, 48 + _ROW * rows, f"and {running - len(tasks):,} more"))
        rows += 1
    return picture(width, 36 + _ROW * rows, parts)
