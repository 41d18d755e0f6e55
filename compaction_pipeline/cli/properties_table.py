"""The README's table of properties, made from `core.model.properties` so that it cannot be out of date.

`python -m compaction_pipeline.cli.properties_table` prints it.
"""

from __future__ import annotations

import sys

from compaction_pipeline.core.model.properties import PROPERTIES

BEGIN = "<!-- properties: made by `python -m compaction_pipeline.cli.properties_table`, do not edit -->"
END = "<!-- /properties -->"


def properties_table() -> str:
    """A Markdown table: property, default, rule, meaning; between the two marks that the README's test looks for."""
    rows = [f"| `{item.key}` | {item.default_text} | {item.rule} | {item.meaning} |" for item in PROPERTIES]
    return "\n".join([BEGIN, "| property | default | rule | meaning |", "| --- | --- | --- | --- |", *rows, END])


if __name__ == "__main__":
    sys.stdout.write(properties_table() + "\n")
