"""Ports that a test holds in its hand: they are real ones, and a test may answer some calls in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

from compaction_pipeline.bootstrap import Services
from compaction_pipeline.core.stores import Stores
from compaction_pipeline_tests.opened import OpenedServices


class InHand:
    """Passes every call on to the `real` port, until a test answers it. No port has a verb of the same name as a verb of this class."""

    def __init__(self, real: Any) -> None:
        self.real = real

    def instead(self, **methods: Callable[..., Any]) -> None:
        """Let these functions answer the calls of these names from now on."""
        self.__dict__.update(methods)

    def instead_once(self, **methods: Callable[..., Any]) -> None:
        """Let these functions answer the next call of these names."""
        for name, method in methods.items():
            self.instead(**{name: self._once(name, method)})

    def _once(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def answered(*arguments: Any, **named: Any) -> Any:
            self.pass_on(name)
            return method(*arguments, **named)

        return answered

    @contextmanager
    def for_a_while(self, **methods: Callable[..., Any]) -> Iterator[None]:
        """Let these functions answer the calls of these names in the block."""
        self.instead(**methods)
        try:
            yield
        finally:
            for name in methods:
                self.pass_on(name)

    def pass_on(self, name: str) -> None:
        """Let the real port answer the calls of this name again."""
        del self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


def stores_in_hand(stores: Stores) -> Stores:
    """The stores, each in the hand of a test."""
    ports = [each.name for each in fields(stores) if each.name not in ("begin_write", "close", "upgraded", "now")]
    return replace(stores, **{name: InHand(getattr(stores, name)) for name in ports})


class ServicesInHand(OpenedServices):
    """Services whose stores, scan and committer are in the hand of a test."""

    @cached_property
    def _stores(self) -> Stores:
        return stores_in_hand(super()._stores)

    @cached_property
    def _scan(self) -> Any:
        return InHand(super()._scan)

    @cached_property
    def _committer(self) -> Any:
        return InHand(super()._committer)


def take_in_hand(services: Services, part: str, take: Callable[[InHand], None]) -> None:
    """Let `take` have a part of new services in its hand: one of their use cases, such as `serve_tasks`, or of their `stores`."""
    if part in (each.name for each in fields(Stores)):
        held = InHand(getattr(services._stores, part))
        services._stores = replace(services._stores, **{part: held})
        # The leases of a process keep their store. They are made again when they are needed next.
        services.__dict__.pop("_leases", None)
    else:
        held = InHand(getattr(services, part))
        setattr(services, part, held)
    take(held)
