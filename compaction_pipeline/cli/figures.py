"""Numbers as people read them."""

from __future__ import annotations

from datetime import datetime, timedelta

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(size_bytes: int) -> str:
    """`1.2 MB`; powers of 1000, as `ls --si` and cloud bills count."""
    size = float(size_bytes)
    for unit in _UNITS[:-1]:
        if abs(size) < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or abs(size) >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"


def time_text(at: datetime | None) -> str:
    """UTC to the second; `-` when it never happened."""
    return at.strftime("%Y-%m-%d %H:%M:%S") if at is not None else "-"


def duration_text(duration: timedelta) -> str:
    """`1.5 s`, `3 min 20 s`, `2 h 5 min`, `7 d`."""
    seconds = duration.total_seconds()
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def change_text(before: int, after: int) -> str:
    """`120 → 3`, or the one number when nothing changed."""
    return f"{before:,} → {after:,}" if before != after else f"{after:,}"
