"""The version of the contract between planner, merge and commit."""

from __future__ import annotations

MERGE_VERSION = 4
"""It rises whenever what a merge reads, writes or proves changes. A server gives tasks only to optimizers that have its own number."""
