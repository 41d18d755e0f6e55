"""Decides whether the checks stop a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from compaction_pipeline.core.insight.checks.every_check import DUE_NOW, CheckResult
from compaction_pipeline.core.insight.checks.judgement import Severity
from compaction_pipeline.core.tables.table import TableIdentifier
from compaction_pipeline.core.words import count_text


@dataclass(frozen=True, slots=True)
class Checked:
    """What all checks found.

    `unread` maps the names of tables and catalogs that could not be read to the reason: nobody knows whether they are well.
    `left_alone` maps the tables that nobody compacts to the reason: their small files do not count.
    With `strict`, a check that has no answer stops a pipeline too, when a look at the tables as they are now could give one. So does what
    `unjudged` names, with the reason: tables that only such a look judges, and catalogs without any table.
    """

    results: tuple[CheckResult, ...]
    unread: Mapping[str, str] = field(default_factory=dict)
    left_alone: Mapping[TableIdentifier, str] = field(default_factory=dict)
    strict: bool = False
    unjudged: Mapping[str, str] = field(default_factory=dict)

    def stopping(self, fail_on: Severity) -> tuple[CheckResult, ...]:
        """Return the results that stop a pipeline: the failed checks that are at least as bad as `fail_on`.

        With `strict` they include, whatever their severity, the checks without an answer that a look at the tables now can judge.
        """
        bad = {Severity.ERROR} if fail_on is Severity.ERROR else set(Severity)
        return tuple(
            result
            for result in self.results
            if (result.failed and result.check.severity in bad) or (self.strict and not result.evaluated and _can_be_judged_now(result))
        )

    def passes(self, fail_on: Severity) -> bool:
        """Return whether a pipeline may go on. It may not when a table could not be read, or was not judged although it had to be."""
        return not self.unread and not self.unjudged and not self.stopping(fail_on)

    def text(self, fail_on: Severity) -> str:
        """One sentence: what stops the pipeline, or that nothing does."""
        stopping = self.stopping(fail_on)
        parts = [f"{result.check.name} ({result.check.severity.value}): {result.judgement.text}" for result in stopping if result.failed]
        parts += [f"{result.check.name} is {result.judgement.text}" for result in stopping if not result.evaluated]
        parts += [f"{name} could not be read: {why}" for name, why in self.unread.items()]
        parts += [f"{name} not judged: {why}" for name, why in self.unjudged.items()]
        if parts:
            return "; ".join(parts)
        warnings = [result for result in self.results if result.failed]
        without_answer = [result for result in self.results if not result.evaluated]
        if warnings:
            names = ", ".join(result.check.name for result in warnings)
            parts = [f"no check fails that stops a pipeline; {count_text(len(warnings), 'warning')}: {names}"]
        elif without_answer:
            parts = [f"no check fails, and {len(self.results) - len(without_answer)} of {count_text(len(self.results), 'check')} pass"]
        else:
            parts = [f"all {count_text(len(self.results), 'check')} pass"]
        if without_answer:
            first = without_answer[0].judgement.unjudged[0]
            parts.append(f"not evaluated: {', '.join(result.check.name for result in without_answer)} ({first.name}: {first.reason})")
        return "; ".join(parts)


def _can_be_judged_now(result: CheckResult) -> bool:
    return result.check.needs_history or result.check is DUE_NOW
