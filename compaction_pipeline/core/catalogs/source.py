"""Where a key of a catalog's definition comes from, and which source wins."""

from __future__ import annotations

from enum import Enum


class Source(str, Enum):
    """A source of definitions, strongest first. Its value is stored.

    COMPONENT: the YAML of the component `CompactionPipeline`. FILE: the file that COMPACTION_CATALOGS_FILE names. PERSON: commands and
    HTTP requests; a key that no source is stored for is a person's.
    """

    COMPONENT = "component"
    FILE = "file"
    PERSON = "person"

    @property
    def in_words(self) -> str:
        """How people call the source."""
        return _WORDS[self]

    def may_set_what(self, holder: Source) -> bool:
        """Whether this source may change a key that `holder` holds."""
        return _STRENGTH[self] >= _STRENGTH[holder]


_WORDS = {
    Source.COMPONENT: "the YAML of the component CompactionPipeline",
    Source.FILE: "the file of COMPACTION_CATALOGS_FILE",
    Source.PERSON: "a command or an HTTP request",
}
_STRENGTH = {Source.PERSON: 0, Source.FILE: 1, Source.COMPONENT: 2}
