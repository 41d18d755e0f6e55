"""The id of the Spark application in which an attempt merges. It is what a worker says of itself, so it only helps people to look there."""

from __future__ import annotations

import re

LONGEST_APPLICATION = 100
APPLICATION_PATTERN = r"^[A-Za-z0-9._-]*$"
"""The ids of every cluster manager fit this: `local-1764036000000`, `app-20261125021615-0007`, `application_1764036000000_0007`, and those
of Kubernetes. No other character can get into a log, a page or a link."""
PLACE = "{application}"
"""Stands in the address of an application's page where the id goes."""


def application_id(text: str) -> str:
    """Return the id when it may be one, and "" otherwise."""
    return text if len(text) <= LONGEST_APPLICATION and re.fullmatch(APPLICATION_PATTERN[1:-1], text) else ""


def application_page(address: str | None, application: str) -> str | None:
    """Return the address of the page of an application; None when nobody has configured `address`, or no application is known."""
    return address.replace(PLACE, application) if address and application else None
