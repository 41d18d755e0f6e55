"""Errors by which a catalog of ours says that a table's pointer was certainly not swapped.

`CommitFailedException` of PyIceberg says the same where another writer was first, and `CommitStateUnknownException` says that nobody knows.
"""

from __future__ import annotations


class SwapNotAsked(Exception):
    """The catalog could not be asked to swap the pointer: it did not answer, or not as it should, to what comes before."""


class SwapRefused(Exception):
    """The catalog refuses to swap the pointer of this table, or our own rules forbid to ask it."""
