"""Keeps the jobs of all projects in memory, as long as no project changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from compaction_pipeline.core.dependencies.center.jobs import DataJob
from compaction_pipeline.core.dependencies.center.makers import Makers, makers_of
from compaction_pipeline.core.dependencies.center.ports import CenterStore
from compaction_pipeline.core.dependencies.center.project_rules import ProjectRule, expanded, rule_of_project
from compaction_pipeline.core.dependencies.center.projects import saved_jobs
from compaction_pipeline.core.errors import NotFoundError


@dataclass(frozen=True)
class Jobs:
    """The jobs by name, when there had been so many changes of projects.

    `own` are those of files, and `rules` those of their projects. `by_name` are all, with the edges that stand for rules.
    """

    version: int
    own: Mapping[str, DataJob]
    rules: Mapping[str, ProjectRule] = field(default_factory=dict)
    by_name: Mapping[str, DataJob] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", expanded(self.own, self.rules))

    @cached_property
    def makers(self) -> Makers:
        """Who makes the data that jobs need."""
        return makers_of(self.by_name)

    def get(self, name: str) -> DataJob:
        """Raises NotFoundError."""
        found = self.by_name.get(name)
        if found is None:
            raise NotFoundError(f"there is no job {name!r}: 'compaction-pipeline dependencies jobs' lists them")
        return found


class Definitions:
    """The verbs are jobs, last and note_saved."""

    def __init__(self, store: CenterStore) -> None:
        self._store = store
        self._jobs = Jobs(0, {})

    def jobs(self) -> Jobs:
        """Return the jobs as they are now."""
        version = self._store.version()
        # After somebody restored an older copy of the state database, all is read anew.
        before = self._jobs if self._jobs.version <= version else Jobs(0, {})
        if version != before.version:
            changed = self._store.projects(before.version)
            # A project may have changed since the first look, so the newest of what was read counts.
            newest = max((one.version for one in changed), default=before.version)
            names = {one.name for one in changed}
            # What waits for a job in a project that changed waits for it as before: its calendar is the same.
            others = {name: job for name, job in before.own.items() if job.project not in names}
            own = {**others, **saved_jobs([one.file for one in changed], others)}
            self._jobs = Jobs(newest, own, {**before.rules, **{one.name: rule_of_project(one.file) for one in changed}})
        return self._jobs

    def last(self) -> Jobs:
        """Return the jobs as they were when somebody asked last. The state database is not asked."""
        return self._jobs

    def note_saved(self, jobs: Jobs) -> None:
        """Keep the jobs that were just saved, so that they are not read again."""
        self._jobs = jobs
