"""What is read when Dagster loads a code location, and is the same in every process that has its definitions."""

from __future__ import annotations

from collections.abc import Callable


def read_at_load(key: str, read: Callable[[], str]) -> str:
    """The text that `read` gave when the code server loaded the definitions. Only there it is called.

    Dagster hands the text to the processes of runs, which may be on hosts with other files. `key` is unique in a code location. A run
    that an older version of the program launched has no such text, and reads it itself.
    """
    # Dagster exports these under no public name. They are imported here, so that other definitions still load when they move. A test tells
    # then.
    from dagster._core.definitions.definitions_load_context import DefinitionsLoadContext, DefinitionsLoadType

    context = DefinitionsLoadContext.get()
    known = context.reconstruction_metadata if context.load_type is DefinitionsLoadType.RECONSTRUCTION else {}
    text: str = known[key] if key in known else read()
    context.add_to_pending_reconstruction_metadata(key, text)
    return text
