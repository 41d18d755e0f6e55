"""Decides whether the checks stop a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.insight.checks.every_check import CheckResult
from compaction_pipeline.core.insight.checks.judgement import Severity
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text


@dataclass(frozen=True, slots=True)
class Checked:
    """What all checks found.

    `unread` maps the names of tables and catalogs that could not be read to the reason: nobody knows whether they are well.
    `left_alone` maps the tables that nobody compacts to the reason: their small files do not count.
    """

    results: tuple[CheckResult, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    left_alone: Mapping[TableIdentifier, str] = field(default_factory=dict)

    def stopping(self, fail_on: Severity) -> tuple[CheckResult, ...]:
        """Return the results that stop a pipeline: the failed checks that are at least as bad as `fail_on`."""
        bad = {Severity.ERROR} if fail_on is Severity.ERROR else set(Severity)
        return tuple(result for result in self.results if not result.passed and result.check.severity in bad)

    def passes(self, fail_on: Severity) -> bool:
        """Return whether a pipeline may go on. It may not when a table could not be read."""
        return not self.unread and not self.stopping(fail_on)

    def text(self, fail_on: Severity) -> str:
        """One sentence: what stops the pipeline, or that nothing does."""
        stopping = self.stopping(fail_on)
        parts = [f"{result.check.name} ({result.check.severity.value}): {result.judgement.text}" for result in stopping]
        parts += [f"{name} could not be read: {why}" for name, why in self.unread.items()]
        if parts:
            return "; ".join(parts)
        warnings = [result for result in self.results if not result.passed]
        if warnings:
            names = ", ".join(result.check.name for result in warnings)
            return f"no check fails that stops a pipeline; {count_text(len(warnings), 'warning')}: {names}"
        return f"all {count_text(len(self.results), 'check')} pass"
