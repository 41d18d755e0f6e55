"""Finds the nodes and tables for the names that a person writes into a run's config, or chooses as partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.errors import CompactionError, NotFoundError
from compaction_pipeline.core.tables.node import TableNode
from compaction_pipeline.core.tables.node_keys import may_be_key_of, table_key
from compaction_pipeline.core.tables.table import TableIdentifier


def nodes_by_table(
    services: Services, keys: Iterable[str], unknown: Callable[[str, str], None]
) -> Mapping[TableIdentifier, Mapping[str, TableNode]]:
    """The nodes of these keys, by table and key. Calls `unknown(key, reason)` for each key that no table holds."""
    found: dict[TableIdentifier, dict[str, TableNode]] = {}
    for key in keys:
        try:
            table, node = _node(services, key)
        except CompactionError as error:
            unknown(key, str(error))
            continue
        found.setdefault(table, {})[key] = node
    return found


def _node(services: Services, key: str) -> tuple[TableIdentifier, TableNode]:
    try:
        return services.read_tables.node(key)
    except NotFoundError:
        # A person may name a node of a table that was never read.
        problem: CompactionError = _unknown_node(key)
        for table in [table for table in services.read_tables.names() if may_be_key_of(table, key)]:
            try:
                services.one_table.refresh(table)
            except CompactionError as error:
                problem = error
        try:
            return services.read_tables.node(key)
        except NotFoundError:
            raise problem from None


def tables_named(names: Iterable[str], unknown: Callable[[str, str], None]) -> Mapping[TableIdentifier, str]:
    """The tables of these names, such as `lake.shop.orders`. Calls `unknown(name, reason)` for each text that is no name of a table."""
    found: dict[TableIdentifier, str] = {}
    for name in names:
        try:
            found[TableIdentifier.parse(name)] = name
        except CompactionError as error:
            unknown(name, str(error))
    return found


def table_named(services: Services, key: str) -> TableIdentifier:
    """The table of a key of the `tables` partitions. Raises NotFoundError."""
    found = next((table for table in services.read_tables.names() if table_key(table) == key), None)
    if found is None:
        raise unknown_table(key)
    return found


def unknown_table(name: str) -> NotFoundError:
    """The error that tells a person at a page of Dagster where the known tables are."""
    return NotFoundError(f"table {name!r} is not known: is its catalog registered? `compaction-pipeline table list` lists all that are")


def _unknown_node(key: str) -> NotFoundError:
    return NotFoundError(
        f"node {key!r} is not known: the table `worst_nodes` on the page of `table_health` and the partitions of `compacted_files` have "
        "keys of nodes, and `compaction-pipeline table show TABLE` lists all of a table"
    )
