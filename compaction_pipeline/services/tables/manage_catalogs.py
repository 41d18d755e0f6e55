"""Adds, changes and removes catalogs, whichever door or file asks for it. Each definition is judged whole, then tried, then stored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compaction_pipeline.core.catalogs.change import CatalogChange, as_defined, change_problems, changed, holder, team_change_text
from compaction_pipeline.core.catalogs.definition import CatalogDefinition
from compaction_pipeline.core.catalogs.facts import Facts
from compaction_pipeline.core.catalogs.keys import OBSERVE
from compaction_pipeline.core.catalogs.over_http import problems_over_http
from compaction_pipeline.core.catalogs.problem import DefinitionError, Problem
from compaction_pipeline.core.catalogs.rules import check_definition, problems_of
from compaction_pipeline.core.catalogs.source import Source
from compaction_pipeline.core.commit.ports import RecordStore
from compaction_pipeline.core.errors import ConfigError, NotFoundError
from compaction_pipeline.core.insight.ports import TableReader
from compaction_pipeline.core.queue.open_work import OpenTasks
from compaction_pipeline.core.queue.ports.tasks import TaskStore
from compaction_pipeline.core.tables.catalog_properties import without_effect
from compaction_pipeline.core.tables.ports.catalogs import CatalogStore
from compaction_pipeline.core.tables.proofs import untried
from compaction_pipeline.core.tables.table import CatalogEntry, TableIdentifier
from compaction_pipeline.core.words import count_text
from compaction_pipeline.services.table_filters import passing
from compaction_pipeline.services.tables.catalogs_file import read_catalogs_file
from compaction_pipeline.services.tables.explore_catalogs import ExploreCatalogs

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tried:
    """A catalog as it is stored, or would be with a dry run.

    `tables` are those that its filters leave in, as its catalog lists them now, and `left_out` the others. `charged` says which team is
    charged for its tables now, when that changes.
    """

    entry: CatalogEntry
    tables: tuple[TableIdentifier, ...]
    left_out: tuple[TableIdentifier, ...]
    charged: str = ""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about properties without an effect, what no commit has shown to work, and another team that is charged."""
        charged = (self.charged,) if self.charged else ()
        return (*without_effect(self.entry.properties), *untried(self.entry.properties), *charged)


@dataclass(frozen=True, slots=True)
class Going:
    """What goes with a catalog: its tables, their tasks that have not ended, and their records. `running` tasks keep it from going."""

    catalog: str
    tables: int
    open_tasks: int
    records: int
    running: int

    @property
    def is_anything(self) -> bool:
        """Whether anything is known that would be forgotten."""
        return bool(self.tables or self.open_tasks or self.records)

    @property
    def in_words(self) -> str:
        """For example: 3 tables, 0 open tasks and 12 records."""
        tables, tasks = count_text(self.tables, "table"), count_text(self.open_tasks, "open task")
        return f"{tables}, {tasks} and {count_text(self.records, 'record')}"


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of the definitions of a file or of a component.

    `problems` are sentences: about a definition that is wrong, so that its catalog stays as it was; about a key that a stronger source
    holds; and about a catalog that the file does not name any more, which stays too.
    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def and_then(self, other: Applied) -> Applied:
        """Both together."""
        return Applied(self.added + other.added, self.changed + other.changed, self.problems + other.problems)


class ManageCatalogs:
    """The verbs entry, add, change, going, remove, apply, check_file and check_definitions."""

    def __init__(
        self,
        catalogs: CatalogStore,
        tables: TableReader,
        tasks: TaskStore,
        records: RecordStore,
        explore: ExploreCatalogs,
        file: Path | None,
        facts: Callable[[], Facts],
    ) -> None:
        """`file` is the one of COMPACTION_CATALOGS_FILE. `facts` tells what the rules of definitions need now."""
        self._facts = facts
        self._catalogs = catalogs
        self._tables = tables
        self._tasks = tasks
        self._records = records
        self._explore = explore
        self._file = file
        self.applied = Applied()
        """What `apply` did the last time, for those who tell people."""

    def entry(self, name: str) -> CatalogEntry:
        """Return a registered catalog. Raises NotFoundError."""
        return self._catalogs.entry(name)

    def add(
        self, definition: CatalogDefinition, problems: Sequence[Problem] = (), *, over_http: bool = False, dry_run: bool = False
    ) -> Tried:
        """Register a catalog that a person defines, after one listing. `problems` are those that reading it has found already.

        Raises DefinitionError with everything that is wrong, ConfigError for a name or a place that is taken, and what the catalog answers.
        Nothing is stored then, nor with `dry_run`.
        """
        of_caller = problems_over_http(definition.properties, definition.properties) if over_http else ()
        check_definition(definition, self._facts(), (*problems, *of_caller))
        entry = definition.entry()
        if any(known.name == entry.name for known in self._catalogs.entries()):
            raise ConfigError(f"catalog {entry.name!r} is registered already; `catalog change {entry.name}` changes it")
        found = sorted(self._explore.tried(entry).tables) if dry_run else self._explore.register(entry)
        return _tried(entry, found, self._charged({}, entry))

    def change(
        self,
        name: str,
        change: CatalogChange,
        problems: Sequence[Problem] = (),
        *,
        over_http: bool = False,
        dry_run: bool = False,
        take_over: bool = False,
    ) -> Tried:
        """Change a catalog as a person asks, after one listing with the new properties. Its tables and their history stay.

        With `take_over`, keys of a file or a component are changed too; it sets them again when it still names them. Raises as `add`, and
        NotFoundError.
        """
        before = self._catalogs.entry(name)
        after = changed(before, change, Source.PERSON)
        refusals = [*problems, *change_problems(before, change, Source.COMPONENT if take_over else Source.PERSON)]
        if over_http:
            asked = {**change.properties, **dict.fromkeys(change.unset)}
            refusals += problems_over_http(after.properties, asked, before.properties)
        whole = problems_of(CatalogDefinition(name, after.properties, after.observe), self._facts())
        refusals += [one for one in whole if one.key not in {known.key for known in refusals}]
        if refusals:
            raise DefinitionError(name, refusals)
        listing = self._explore.tried(after)
        if not dry_run:
            self._catalogs.replace(after, before)
            self._explore.store_listing(after, listing)
        return _tried(after, sorted(listing.tables), self._charged(before.properties, after))

    def _charged(self, before: Mapping[str, str], after: CatalogEntry) -> str:
        facts = self._facts()
        # A mapping of the whole catalog wins over its properties, so these change nothing.
        return "" if after.name in facts.mapped else team_change_text(before, after.properties, facts.teams)

    def going(self, name: str) -> Going:
        """Return what goes with a catalog. It need not be readable: the key of its secrets may be lost. Raises NotFoundError."""
        self._catalogs.check_known(name)
        tables = [state.table for state in self._tables.states(name)]
        work = [tasks for table, tasks in self._tasks.open_tasks().items() if table.catalog == name]
        records = [record for record in self._records.records() if record.table.catalog == name]
        return Going(name, len(tables), sum(map(_total, work)), len(records), sum(tasks.merging for tasks in work))

    def remove(self, name: str) -> Going:
        """Forget a catalog and what is known of its tables, and return what went. The tables themselves stay as they are.

        Raises NotFoundError, and ConfigError while tasks of its tables run.
        """
        going = self.going(name)
        if going.running:
            running = count_text(going.running, "task")
            raise ConfigError(
                f"catalog {name} cannot be removed while {running} of its tables run: pause its tables and wait until they have ended, or "
                "cancel them with `task cancel --running`"
            )
        self._explore.remove(name)
        return going

    def apply(self, declared: Sequence[CatalogDefinition] = ()) -> Applied:
        """Make the catalogs as a component declares them, and the file of COMPACTION_CATALOGS_FILE.

        A definition with a problem changes nothing, and does not keep the others from being applied; neither does a file that cannot be
        read. No catalog is asked, so this works while one is down; the next listing finds the tables.
        """
        self.applied = self._all_applied(declared)
        return self.applied

    def _all_applied(self, declared: Sequence[CatalogDefinition]) -> Applied:
        of_component = self._applied(Source.COMPONENT, [(definition, ()) for definition in declared])
        if self._file is None:
            return of_component
        try:
            defined = read_catalogs_file(self._file)
        except ConfigError as error:
            return of_component.and_then(Applied(problems=(str(error),)))
        of_file = self._applied(Source.FILE, defined)
        names = {definition.name for definition, _ in defined}
        gone = [entry.name for entry in self._catalogs.entries() if Source.FILE.value in entry.held.values() and entry.name not in names]
        of = Source.FILE.in_words
        unnamed = (f"catalog {name} is not named by {of} any more; it stays until `catalog remove {name}`" for name in gone)
        return of_component.and_then(of_file).and_then(Applied(problems=tuple(unnamed)))

    def check_file(self) -> None:
        """Raise ConfigError when the file of catalogs cannot be read as one. A definition in it may be wrong nevertheless."""
        if self._file is not None:
            read_catalogs_file(self._file)

    def check_definitions(self) -> int:
        """Return how many catalogs the file defines; 0 without a file. Nothing is stored.

        Raises ConfigError when the file cannot be read as one, and with everything that is wrong with its definitions.
        """
        defined = () if self._file is None else read_catalogs_file(self._file)
        known = {entry.name: entry for entry in self._catalogs.entries()}
        wrong = []
        for definition, problems in defined:
            try:
                self._wanted(known.get(definition.name), definition, Source.FILE, problems)
            except ConfigError as error:
                wrong.append(str(error))
        if wrong:
            raise ConfigError("; ".join(wrong))
        return len(defined)

    def _wanted(
        self, before: CatalogEntry | None, definition: CatalogDefinition, source: Source, problems: Sequence[Problem]
    ) -> CatalogEntry:
        """The catalog that comes of a definition and of what is registered. Raises ConfigError when it is wrong.

        A source may name a part of the keys, so the whole is judged.
        """
        if before is not None and before.unreadable is not None:
            raise ConfigError(before.unreadable)
        wanted = as_defined(before, definition, source)
        if problems or wanted != before:
            check_definition(CatalogDefinition(definition.name, wanted.properties, wanted.observe), self._facts(), tuple(problems))
        return wanted

    def _applied(self, source: Source, given: Sequence[tuple[CatalogDefinition, Sequence[Problem]]]) -> Applied:
        known = {entry.name: entry for entry in self._catalogs.entries()} if given else {}
        done = Applied()
        for definition, problems in given:
            before = known.get(definition.name)
            done = done.and_then(Applied(problems=tuple(_overruled(before, definition, source))))
            try:
                wanted = self._wanted(before, definition, source, problems)
                if wanted == before:
                    continue
                self._explore.refuse_second_name(wanted)
                self._store(before, definition, source)
            except ConfigError as error:
                done = done.and_then(Applied(problems=(f"{source.in_words}: {error}",)))
                continue
            done = done.and_then(Applied(changed=(definition.name,)) if before is not None else Applied(added=(definition.name,)))
            log.info("catalog=%s is now as %s defines it", definition.name, source.in_words)
        return done

    def _store(self, before: CatalogEntry | None, definition: CatalogDefinition, source: Source) -> None:
        if before is None:
            try:
                self._catalogs.add(as_defined(None, definition, source))
                return
            except ConfigError as error:
                # Another process may have registered the catalog since we looked.
                try:
                    before = self._catalogs.entry(definition.name)
                except NotFoundError:
                    raise error from None
        self._catalogs.replace(as_defined(before, definition, source), before)


def _overruled(before: CatalogEntry | None, definition: CatalogDefinition, source: Source) -> Iterator[str]:
    """Sentences about keys of a definition that a stronger source holds with another value."""
    if before is None:
        return
    wanted = {**definition.properties, **({} if definition.observe is None else {OBSERVE: definition.observe})}
    for key, value in wanted.items():
        of = holder(before, key)
        now = before.observe if key == OBSERVE else before.properties.get(key)
        if not source.may_set_what(of) and now != value:
            yield f"catalog {definition.name}: {source.in_words} sets '{key}', but {of.in_words} holds it and wins"


def _total(tasks: OpenTasks) -> int:
    return tasks.waiting + tasks.merging + tasks.merged + tasks.paused + tasks.failed


def _tried(entry: CatalogEntry, found: Sequence[TableIdentifier], charged: str) -> Tried:
    kept = passing(found, entry.properties)
    return Tried(entry, kept, tuple(table for table in found if table not in set(kept)), charged)
