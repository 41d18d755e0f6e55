"""Says what may be waited for, as one text.

A subject names a thing by equalities, joined by `&&`: `job=ods.load && biz=2026-01-01`, `table=lake.ods.orders && day=2026-01-01`,
`asset=reports/daily && window=2026-01-01T00:00Z/2026-01-02T00:00Z`. A watermark is waited for by a bound:
`table=lake.ods.orders && watermark>=2026-01-01T03:00Z`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from compaction_pipeline.core.dependencies.ready_time import Window, instant_of, instant_text
from compaction_pipeline.core.errors import ConfigError

JOB, TABLE, ASSET = "job", "table", "asset"
BIZ, PART, BACKFILL, WINDOW, WATERMARK = "biz", "part", "backfill", "window", "watermark"
QUALITY = "quality"
"""What was told of the quality of a run. Nobody waits for it by itself."""
THERE = 1
"""The bound of whatever is there or not. A watermark's bound is in milliseconds since 1970."""
MOST_BYTES = 1_000
_AND = " && "
_TERM = re.compile(r"\s*([^\s=<>&]+)\s*(>=|<=|=)\s*(.*?)\s*", re.DOTALL)
_FORMS = (
    "job=NAME && biz=TIME, table=TABLE && FIELD=VALUE, table=TABLE && window=FROM/TO, table=TABLE && watermark>=TIME, "
    "or asset=KEY && window=FROM/TO"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_A = {JOB: "a job", ASSET: "an asset"}
_ALLOWED = {JOB: (BIZ, PART, BACKFILL), ASSET: (WINDOW,)}


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """What may be waited for. It is there when what is known of `key` has reached `bound`.

    The same thing has the same key, in whatever order it was written.
    """

    key: str
    bound: int = THERE

    def __str__(self) -> str:
        named = named_in(self.key)
        if WATERMARK not in named:
            return self.key
        return f"{self.key.removesuffix(f'{_AND}{WATERMARK}=')}{_AND}{WATERMARK}>={instant_text(moment_of(self.bound))}"


def check_text(what: str, text: str) -> None:
    """Raises ConfigError for a text that no state database could keep: too long, or with characters that no name has."""
    if len(text.encode("utf-8", "replace")) > MOST_BYTES:
        raise ConfigError(f"{what} {text[:60]!r}… has more than {MOST_BYTES} bytes in UTF-8: name something shorter")
    wrong = next((letter for letter in text if not letter.isprintable()), None)
    if wrong is not None:
        raise ConfigError(f"{what} {text[:60]!r} has the character {wrong!r}, which no name has: remove it")


def key_of(kind: str, name: str, **equalities: str) -> str:
    """The key of a thing: its kind and name, and then the equalities by their names."""
    return _AND.join(f"{key}={value}" for key, value in ((kind, name), *sorted(equalities.items())))


def named_in(key: str) -> Mapping[str, str]:
    """The equalities of a key, the kind first."""
    return dict(one.split("=", 1) for one in key.split(_AND))


def window_text(start: datetime, end: datetime) -> str:
    """A window as subjects write it."""
    return f"{instant_text(start)}/{instant_text(end)}"


def window_in(text: str) -> Window:
    """The window that `window_text` wrote."""
    start, _, end = text.partition("/")
    return Window(instant_of(start), instant_of(end))


def watermark_bound(at: datetime) -> int:
    """A time as the bound of a watermark: milliseconds since 1970, rounded up, so that nothing is there too early."""
    return -((_EPOCH - at) // timedelta(milliseconds=1))


def watermark_reached(at: datetime) -> int:
    """How far a watermark is: milliseconds since 1970, rounded down."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def moment_of(bound: int) -> datetime:
    """The time of a watermark's bound."""
    return _EPOCH + timedelta(milliseconds=bound)


@dataclass(frozen=True, slots=True)
class RunRange:
    """The runs of a job from one business time to another, both as texts."""

    job: str
    first: str
    last: str


_RANGE = re.compile(rf"\s*{JOB}\s*=\s*([^&]+?)\s*&&\s*{BIZ}\s*>=\s*([^&]+?)\s*&&\s*{BIZ}\s*<=\s*([^&]+?)\s*")


def range_of(text: str) -> RunRange | None:
    """The range that a text names (`job=ods.load && biz>=2026-01-01 && biz<=2026-01-07`); None for another text."""
    found = _RANGE.fullmatch(text) if len(text) <= MOST_BYTES else None
    return None if found is None else RunRange(*found.groups())


def subject_of(text: str) -> Subject:
    """The subject that a text names. Raises ConfigError, with the attribute that is wrong."""
    check_text("the subject", text)
    terms = [_term(text, one) for one in text.split("&&")]
    names = [name for name, _, _ in terms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"the subject {text!r} names {twice!r} twice: a subject is one thing, so name each attribute once")
    kind = names[0]
    if kind not in (JOB, TABLE, ASSET):
        raise ConfigError(f"the subject {text!r} begins with {kind!r} but must be like {_FORMS}")
    unknown = next((name for name in names[1:] if kind in _ALLOWED and name not in _ALLOWED[kind]), None)
    if unknown is not None:
        raise ConfigError(f"the subject {text!r} names the attribute {unknown!r}, which {_A[kind]} does not have; it must be like {_FORMS}")
    if len(terms) == 1 or (kind == JOB and BIZ not in names):
        raise ConfigError(f"the subject {text!r} does not say which {BIZ if kind == JOB else 'data'}; it must be like {_FORMS}")
    return _checked(text, kind, terms)


def _term(text: str, one: str) -> tuple[str, str, str]:
    found = _TERM.fullmatch(one)
    if found is None or not found[3]:
        raise ConfigError(f"the subject {text!r} has {one.strip()!r}, which is no NAME=VALUE; it must be like {_FORMS}")
    return found[1], found[2], found[3]


def _checked(text: str, kind: str, terms: list[tuple[str, str, str]]) -> Subject:
    values = {name: value for name, _, value in terms}
    compared = {name for name, sign, _ in terms if sign != "="}
    if kind == TABLE and WATERMARK in values:
        if len(values) > 2 or [sign for name, sign, _ in terms if name == WATERMARK] != [">="]:
            raise ConfigError(f"the subject {text!r} must have {WATERMARK}>=TIME and nothing else: a watermark is of the whole table")
        return Subject(key_of(TABLE, values[TABLE], watermark=""), watermark_bound(instant_of(values[WATERMARK])))
    if compared:
        raise ConfigError(f"the subject {text!r} compares {min(compared)!r}, but only a watermark is: name one thing by equalities")
    if WINDOW in values:
        start, slash, end = values[WINDOW].partition("/")
        if len(values) > 2 or not slash:
            raise ConfigError(f"the subject {text!r} must have {WINDOW}=FROM/TO and nothing else beside the {kind}")
        window = (instant_of(start), instant_of(end))
        if window[0] >= window[1]:
            raise ConfigError(f"the window of the subject {text!r} is empty: its end must be after its start")
        return Subject(key_of(kind, values[kind], window=window_text(*window)))
    return Subject(key_of(kind, values.pop(kind), **values))
