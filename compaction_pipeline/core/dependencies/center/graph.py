"""Graphs of numbered nodes: their components, and the ways round in them. An edge is a pair of nodes, from and to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

Ends = Sequence[tuple[int, int]]


def components(size: int, ends: Ends) -> list[list[int]]:
    """The nodes 0 to `size` − 1 in groups that all lead to each other. An edge between two groups leads to the earlier one."""
    search = _Search(size, _following(size, ends), ends)
    for root in range(size):
        if search.seen[root] < 0:
            search.walk(root)
    return search.groups


class _Search:
    """Tarjan's search for components, with a path of its own instead of recursion."""

    def __init__(self, size: int, following: list[list[int]], ends: Ends) -> None:
        self.seen = [-1] * size
        self.groups: list[list[int]] = []
        self._lowest = [0] * size
        self._count = 0
        self._stack: list[int] = []
        self._is_open = [False] * size
        self._following, self._ends = following, ends
        self._path: list[tuple[int, Iterator[int]]] = []

    def walk(self, root: int) -> None:
        self._enter(root)
        while self._path:
            node, edges = self._path[-1]
            other = next((self._ends[edge][1] for edge in edges if self._is_new(node, self._ends[edge][1])), None)
            if other is None:
                self._leave(node)
            else:
                self._enter(other)

    def _enter(self, node: int) -> None:
        self.seen[node] = self._lowest[node] = self._count
        self._count += 1
        self._stack.append(node)
        self._is_open[node] = True
        self._path.append((node, iter(self._following[node])))

    def _is_new(self, node: int, other: int) -> bool:
        if self._is_open[other]:
            self._lowest[node] = min(self._lowest[node], self.seen[other])
        return self.seen[other] < 0

    def _leave(self, node: int) -> None:
        self._path.pop()
        if self._path:
            before = self._path[-1][0]
            self._lowest[before] = min(self._lowest[before], self._lowest[node])
        if self._lowest[node] == self.seen[node]:
            group = [self._stack.pop()]
            while group[-1] != node:
                group.append(self._stack.pop())
            for member in group:
                self._is_open[member] = False
            self.groups.append(group)


def way_through(start: int, ends: Ends) -> list[int] | None:
    """The shortest way round through a node, as numbers of edges; None when there is none."""
    following: dict[int, list[int]] = {}
    for edge, (before, _) in enumerate(ends):
        following.setdefault(before, []).append(edge)
    reached: dict[int, int] = {}
    queue = deque([start])
    while queue and start not in reached:
        for edge in following.get(queue.popleft(), ()):
            if ends[edge][1] not in reached:
                reached[ends[edge][1]] = edge
                queue.append(ends[edge][1])
    return _back(reached, ends, start) if start in reached else None


def positive_way(order: Sequence[int], ends: Ends, weights: Sequence[int]) -> list[int] | None:
    """A way round whose weights sum above zero, as numbers of edges; None when there is none.

    Each pass (Bellman and Ford) lengthens the ways along `order`, so few passes are needed when most edges that weigh more than zero lead
    forward in it.
    """
    following = _following(len(order), ends)
    length = [0] * len(order)
    reached: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for node in order:
            here = length[node]
            for edge in following[node]:
                other = ends[edge][1]
                if here + weights[edge] > length[other]:
                    length[other] = here + weights[edge]
                    reached[other] = edge
                    changed = True
        start = _on_a_round(reached, ends)
        if start is not None:
            return _back(reached, ends, start)
    return None


def _on_a_round(reached: dict[int, int], ends: Ends) -> int | None:
    """A node from which the edges by which nodes were reached lead back to it."""
    walks: dict[int, int] = {}
    for walk, start in enumerate(reached):
        node = start
        while node in reached and node not in walks:
            walks[node] = walk
            node = ends[reached[node]][0]
        if walks.get(node) == walk:
            return node
    return None


def _back(reached: dict[int, int], ends: Ends, start: int) -> list[int]:
    """The way round through a node over the edges by which nodes were reached, in forward order."""
    way = [reached[start]]
    while ends[way[-1]][0] != start:
        way.append(reached[ends[way[-1]][0]])
    return way[::-1]


def _following(size: int, ends: Ends) -> list[list[int]]:
    following: list[list[int]] = [[] for _ in range(size)]
    for edge, (before, _) in enumerate(ends):
        following[before].append(edge)
    return following


def within(groups: Sequence[Sequence[int]], ends: Ends) -> dict[int, list[int]]:
    """The edges that stay in a group, as numbers of edges by the place of their group. Groups without such an edge are left out."""
    group_of = {member: place for place, members in enumerate(groups) for member in members}
    inner: dict[int, list[int]] = {}
    for edge, (before, after) in enumerate(ends):
        if group_of[before] == group_of[after]:
            inner.setdefault(group_of[before], []).append(edge)
    return inner
