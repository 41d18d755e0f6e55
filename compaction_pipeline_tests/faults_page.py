"""The rows of `docs/faults.md`. The page says a message once, below its tables, and its rows refer to it by number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

HEADING = "## The messages"
_HEAD = f"""{HEADING}

STATUS stands for the answer of the catalog by which the fault is called, such as `400: TestException: Bad Request`.
"""
_COLUMNS = (
    "| fault | exit code, `reason_code` | what `compact` says | the table's state meanwhile | unlisted files left "
    "| `compact` an hour later | left a day later |"
)
_BEFORE_MESSAGES = {2: r"1 task\(s\) failed: ID-\d+: ", 3: "HEALTHY: ", 5: r"exit \d+, \d+ of \d+ committed: "}
"""The number of a cell → what stands in it before a message. Other states of tables repeat the message of `compact`."""


def written(head: str, groups: Mapping[str, Sequence[str]], rows: Mapping[str, Sequence[str]]) -> str:
    """The whole page: its head, a table of faults for each group, and the messages. `rows` are the seven cells of each fault, in full."""
    numbers: dict[str, int] = {}
    lines = [head]
    for group, faults in groups.items():
        lines += ["", f"## {group}", "", _COLUMNS, "| --- " * len(_cells(_COLUMNS)) + "|"]
        lines += [_line(_short(rows[fault], numbers)) for fault in faults]
    return "\n".join([*lines, "", _HEAD, *(f"{number}. {message}" for message, number in numbers.items())]) + "\n"


def read(page: str) -> dict[str, tuple[str, ...]]:
    """The cells of each fault on a page, in full, by the name of the fault."""
    tables, _, said = page.partition(HEADING)
    messages = dict(re.findall(r"^(\d+)\. (.*)$", said, re.MULTILINE))
    found = {}
    for line in tables.splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| fault |")):
            cells = _cells(line)
            found[cells[0]] = tuple(_full(cell, cells[0], messages) for cell in cells)
    return found


def _short(cells: Sequence[str], numbers: dict[str, int]) -> list[str]:
    """The cells with the number of each message in its place. A message that is new gets the next number."""
    short = list(cells)
    for message in _messages(cells):
        number = numbers.setdefault(message.replace(_status(cells[0]), "STATUS"), len(numbers) + 1)
        short = [cell.replace(message, f"({number})") for cell in short]
    return short


def _messages(cells: Sequence[str]) -> Iterator[str]:
    for place, before in _BEFORE_MESSAGES.items():
        begins = re.match(before, cells[place])
        if begins or (place == 2 and cells[place]):
            yield cells[place][begins.end() if begins else 0 :]


def _full(cell: str, fault: str, messages: Mapping[str, str]) -> str:
    return re.sub(r"\((\d+)\)", lambda found: messages[found[1]].replace("STATUS", _status(fault)), cell)


def _status(fault: str) -> str:
    return fault.replace(" ", ": TestException: ", 1)


def _cells(line: str) -> list[str]:
    return line.strip().removeprefix("| ").removesuffix(" |").split(" | ")


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
