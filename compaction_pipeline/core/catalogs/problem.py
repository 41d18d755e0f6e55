"""What is wrong with a definition of a catalog: all of it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compaction_pipeline.core.errors import ConfigError
from compaction_pipeline.core.words import count_text, printable

MOST_TOLD = 50
"""An answer tells at most so many problems. A definition with more is no mistake of typing."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: the key or the field, and a sentence that names the rule and says what to do. It repeats no secret."""

    key: str
    sentence: str


class DefinitionError(ConfigError):
    """A definition breaks rules. `problems` has all of them, and nothing was stored."""

    def __init__(self, catalog: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        told = "; ".join(one.sentence for one in self.problems[:MOST_TOLD])
        more = f"; and {count_text(len(self.problems) - MOST_TOLD, 'more problem')}" if len(self.problems) > MOST_TOLD else ""
        super().__init__(f"catalog {printable(catalog, 100)!r}: {told}{more}; correct the properties of the catalog: nothing was stored")
