"""The few elements of SVG that our pictures need.

Dagster shows only short Markdown at once, and a picture is a part of it. So the markup is terse, and numbers are whole. The colours stand
out on white and on black alike, because a picture does not know the theme of the page around it.
"""

from __future__ import annotations

from collections.abc import Iterable

GREY = "#7a7a7a"
BLUE = "#3987d6"
ORANGE = "#d98c00"
RED = "#d5532a"
PURPLE = "#a86cd6"

_WIDTHS = {**dict.fromkeys("ijlIJ|'", 3.6), **dict.fromkeys(" .,:;!/-()[]ftr", 5.0), **dict.fromkeys("mwMWQO=@%&+<>~", 12.0)}

_NO_XML = dict.fromkeys([*range(32), 127, 65534, 65535, *range(55296, 57344)], "�")
_ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&#39;", '"': "&quot;"})


def escaped(words: str) -> str:
    """Any text as character data of XML. Characters that XML forbids become U+FFFD."""
    return words.translate(_NO_XML).translate(_ENTITIES)


def picture(width: int, height: int, parts: Iterable[str]) -> str:
    """A whole picture of this size in pixels. Text in it is grey, unless it says otherwise."""
    size = f"width='{width}' height='{height}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} style='font:12px sans-serif' fill='{GREY}'>{''.join(parts)}</svg>"


def words_at(x: int, y: int, words: str, colour: str | None = None) -> str:
    """A line of text that begins at `x`, with its base line at `y`."""
    place = f" x='{x}'" if x else ""
    fill = f" fill='{colour}'" if colour else ""
    return f"<text{place} y='{y}'{fill}>{escaped(words)}</text>"


def bars(boxes: Iterable[tuple[int, int, int]], colour: str) -> str:
    """Bars of one colour. Each box is (x, y, width), where `y` is the middle of the bar. A bar without width is left out."""
    drawn = "".join(f"M{x},{y}h{width}" for x, y, width in boxes if width)
    return f"<path stroke-width='11' stroke='{colour}' d='{drawn}'/>" if drawn else ""


def line(d: str, colour: str, dashed: bool = False) -> str:
    """A line along the path `d`."""
    dashes = " stroke-dasharray='4'" if dashed else ""
    return f"<path fill='none' stroke-width='2' stroke='{colour}'{dashes} d='{d}'/>"


def text_width(words: str) -> float:
    """The width of a text in pixels, in the widest of the usual sans-serif fonts (DejaVu Sans). In others it is narrower."""
    return sum(_WIDTHS.get(each, 9.4 if "A" <= each <= "Z" else 7.7 if each < "\x7f" else 12.0) for each in words)


def clipped_middle(name: str, most: int) -> str:
    """A name of at most `most` characters, which keeps its beginning and its end: the table and the partition."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[len(name) - end :]}"


def fitted(name: str, pixels: float) -> str:
    """A name that is at most so many pixels wide, with an ellipsis in its middle when it is too long. Three characters always stay."""
    most = min(len(name), int(pixels))
    while most > 3 and text_width(clipped_middle(name, most)) > pixels:
        most -= 1
    return clipped_middle(name, max(most, 3))
