"""The one form in which people read counts, sizes, durations and times: in reasons, tables, pages and logs.

1 MB is 10⁶ bytes, as on disks and cloud bills. A duration of 5,400 s is "1 h 30 min".
"""

from __future__ import annotations

from datetime import datetime, timedelta

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count_text(count: int, word: str) -> str:
    """Return a count with its word, for example "1 small data file" or "3 small data files"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def mean_text(mean: float) -> str:
    """Return an average with one decimal place at most, for example "3.2" or "3"."""
    return f"{mean:.1f}".removesuffix(".0")


def part_text(part: float, whole: float) -> str:
    """Return a part of a whole with as many decimal places as the whole has, at least two and at most four: "0.38 of 4.00"."""
    places = max(2, len(f"{whole:.4f}".rstrip("0").partition(".")[2]))
    return f"{part:.{places}f} of {whole:.{places}f}"


def bytes_text(size_bytes: int) -> str:
    """Return a size in a unit that is a power of 1000 bytes, for example "1.2 MB" or "134 MB"."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(size) < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def gb_hours_text(gb_hours: float | None) -> str:
    """GB-hours, or that they are unknown, for example "0.0125"."""
    return "unknown" if gb_hours is None else f"{gb_hours:.3g}"


def duration_text(duration: timedelta) -> str:
    """Return a duration in its one or two largest units, for example "1.5 s", "3 min 20 s", "1 h 30 min" or "7 d"."""
    seconds = duration.total_seconds()
    if seconds < 59.95:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def time_text(at: datetime | None) -> str:
    """Return a UTC time to the second; "-" for None, which means that the event never happened."""
    return at.strftime("%Y-%m-%d %H:%M:%S") if at is not None else "-"


def moment_text(at: datetime, now: datetime) -> str:
    """Return a UTC time as a stored sentence says it: "22:36:33 UTC"; with the date when it is on another day than `now`."""
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{time_text(at)} UTC"


def count_change_text(before: int, after: int, word: str) -> str:
    """Return both counts with their word, for example "120 files → 3", "1 file → 0" or "3 files"."""
    counted = f"{before:,} {word if before == 1 else f'{word}s'}"
    return f"{counted} → {after:,}" if before != after else counted


def change_text(before: int, after: int) -> str:
    """Return both numbers, for example "120 → 3"; one number when they are equal."""
    return f"{before:,} → {after:,}" if before != after else f"{after:,}"


LONGEST_TEXT = 8 * 1024
"""A text of somebody else is kept up to so many characters."""


def printable(text: str, most: int = LONGEST_TEXT) -> str:
    """Return a text of somebody else as one line that is safe to store, to log and to show on a terminal.

    Control characters, ends of lines, and characters that change the direction of text, are written as escapes such as `\\x1b`. A text of
    more than `most` characters is cut.
    """
    cut = text if len(text) <= most else f"{text[:most]}…"
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in cut)
