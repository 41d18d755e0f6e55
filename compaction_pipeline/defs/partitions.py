"""The two dynamic partition dimensions: one key per table node that needs care, one per table.

Keys are made and parsed by `core.model.node` only. A table is named by the first part of its nodes' keys, so that both
dimensions sort alike and none holds a raw dot inside a level.
"""

from __future__ import annotations

import dagster as dg

table_nodes = dg.DynamicPartitionsDefinition(name="table_nodes")
tables = dg.DynamicPartitionsDefinition(name="tables")
