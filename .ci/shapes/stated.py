"""What laws, models, crash and interop tests say otherwise than at an older commit, when names and imports are left aside.

Comments and layout do not count. Two statements are the same when one becomes the other by renaming, the renaming is one-to-one in all
these files, the old name is used nowhere in them any more, and the new one was not used before.
"""

from __future__ import annotations

import ast
import difflib
import io
import keyword
import re
import subprocess
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

STATED = re.compile(
    r"(^compaction_pipeline_tests/(scenarios|interop)/.*\.py$)|(^compaction_pipeline_tests/.*(laws?|model\w*|machine|crash\w*)\.py$)"
)
Line = tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    path: str
    old: list[str]
    new: list[str]


class _NoImports(ast.NodeTransformer):
    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None


def statements(text: str) -> list[str]:
    """The lines of the code without imports and comments, each statement on one line."""
    return ast.unparse(_NoImports().visit(ast.parse(text))).splitlines()


def shape_of(line: str) -> tuple[Line, Line]:
    """The line with each name replaced, and its names."""
    shape, names = [], []
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.strip()).readline):
            is_name = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
            shape.append("name" if is_name else token.string)
            if is_name:
                names.append(token.string)
    except (tokenize.TokenError, IndentationError):
        return (line,), ()
    return tuple(shape), tuple(names)


def differences(pairs: dict[str, tuple[str, str]]) -> list[Difference]:
    """What differs. `pairs` are the old and the new text of each file by its path."""
    lines = {path: (statements(old), statements(new)) for path, (old, new) in pairs.items()}
    changes = {path: list(_changes(*both)) for path, both in lines.items()}
    was, used = (Counter(name for both in lines.values() for line in both[side] for name in shape_of(line)[1]) for side in (0, 1))
    forth: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    for found in changes.values():
        for old, new in found:
            for before, after in _renamed(old, new):
                forth.setdefault(before, set()).add(after)
                back.setdefault(after, set()).add(before)
    alone = {old: next(iter(new)) for old, new in forth.items() if len(new) == 1 and not used[old]}
    names = {old: new for old, new in alone.items() if len(back[new]) == 1 and not was[new]}
    return [Difference(path, old, new) for path, found in changes.items() for old, new in found if not _is_renaming(old, new, names)]


def _changes(old: list[str], new: list[str]) -> list[tuple[list[str], list[str]]]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [(old[a:b], new[c:d]) for kind, a, b, c, d in matcher.get_opcodes() if kind != "equal"]


def _renamed(old: list[str], new: list[str]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for before, after in zip(old, new, strict=True) if len(old) == len(new) else ():
        (shape, names), (other, others) = shape_of(before), shape_of(after)
        if shape == other:
            found |= {(a, b) for a, b in zip(names, others, strict=True) if a != b}
    return found


def _is_renaming(old: list[str], new: list[str], names: dict[str, str]) -> bool:
    if len(old) != len(new):
        return False
    for before, after in zip(old, new, strict=True):
        (shape, mine), (other, theirs) = shape_of(before), shape_of(after)
        if shape != other or any(a != b and names.get(a) != b for a, b in zip(mine, theirs, strict=True)):
            return False
    return True


def _git(repo: Path, *words: str) -> str:
    answer = subprocess.run(["git", *words], cwd=repo, capture_output=True, text=True, check=False)
    if answer.returncode:
        raise SystemExit(f"git {' '.join(words)} in {repo} failed: {answer.stderr.strip()}")
    return answer.stdout


def since(repo: Path, commit: str) -> tuple[list[Difference], list[str], list[str]]:
    """What differs between the commit and the files of the checkout; the files that came, and those that went."""
    pairs: dict[str, tuple[str, str]] = {}
    came, went = [], []
    fields = _git(repo, "diff", "--name-status", "-z", "-M", commit, "--", "compaction_pipeline_tests").split("\0")
    while fields and fields[0]:
        status = fields.pop(0)
        old = fields.pop(0)
        new = fields.pop(0) if status[0] in "RC" else old
        if not (STATED.match(old) or STATED.match(new)):
            continue
        if status[0] == "A":
            came.append(new)
        elif status[0] == "D":
            went.append(old)
        else:
            pairs[new] = (_git(repo, "show", f"{commit}:{old}"), (repo / new).read_text())
    return differences(pairs), came, went
