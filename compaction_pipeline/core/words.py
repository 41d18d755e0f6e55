"""Counts, sizes, durations and moments as people read them: each has one form, in reasons, tables, pages and logs.

MB is 10⁶ bytes, as disks and cloud bills count; 5,400 s are "1 h 30 min".
"""

from __future__ import annotations

from datetime import datetime, timedelta

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def count_text(count: int, word: str) -> str:
    """ "1 small data file", "3 small data files"."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def bytes_text(size_bytes: int) -> str:
    """ "1.2 MB", "134 MB"; in powers of 1000."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(size) < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def duration_text(duration: timedelta) -> str:
    """ "1.5 s", "3 min 20 s", "1 h 30 min", "7 d"."""
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
    """UTC to the second; "-" when it never happened."""
    return at.strftime("%Y-%m-%d %H:%M:%S") if at is not None else "-"


def change_text(before: int, after: int) -> str:
    """ "120 → 3", or the one number when nothing changed."""
    return f"{before:,} → {after:,}" if before != after else f"{after:,}"
