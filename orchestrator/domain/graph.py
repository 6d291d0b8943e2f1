"""The graph of `needs`: cycles, ancestors, and what can never start.

Iterative throughout, because a chain of 10,000 tasks is legal and Python's stack is not that deep.

Edges point from a task to its needs. Sets of tasks are ints used as bit sets: 10,000 tasks with
10,000 ancestors each are 12 MB and a few milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Graph:
    """Findings about one graph. Positions index the list of tasks."""

    ancestors: tuple[int, ...]
    """Per task: bit set of all tasks upstream. Members of a cycle are upstream of each other."""
    cycles: tuple[tuple[int, ...], ...]
    """One per strongly connected component of two or more: a shortest cycle through its first
    task, along `needs`, without repeating the start at the end. In definition order."""
    unreachable: tuple[int, ...]
    """Tasks that need a task on a cycle (or one that needs itself) and are not on one."""

    def is_upstream(self, task: int, of: int) -> bool:
        """Whether `task` always settles before `of` starts."""
        return bool(self.ancestors[of] >> task & 1)


def analyse(needs: Sequence[Sequence[int]]) -> Graph:
    """Examine a graph; `needs[i]` are the positions that task i needs (itself allowed)."""
    components = _components(needs)
    ancestors = [0] * len(needs)
    cyclic = 0  # bit set of tasks on a cycle
    cycles: list[tuple[int, ...]] = []
    for component in components:  # needs come before the tasks that need them
        looped = len(component) > 1 or component[0] in needs[component[0]]
        merged = 0
        for task in component:
            for need in needs[task]:
                merged |= ancestors[need] | 1 << need
        for task in component:
            ancestors[task] = merged
        if looped:
            for task in component:
                cyclic |= 1 << task
        if len(component) > 1:
            cycles.append(_shortest_cycle(min(component), frozenset(component), needs))
    unreachable: tuple[int, ...] = ()
    if cyclic:
        unreachable = tuple(
            task
            for task in range(len(needs))
            if ancestors[task] & cyclic and not cyclic >> task & 1
        )
    return Graph(tuple(ancestors), tuple(sorted(cycles)), unreachable)


def _components(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    """Strongly connected components, those needed first: Tarjan's algorithm (1972) with its
    recursion written as a stack of (task, position in its needs)."""
    count = len(needs)
    order = [-1] * count  # number of the visit, -1: not visited
    low = [0] * count
    on_path = [False] * count
    path: list[int] = []
    found: list[list[int]] = []
    visits = 0
    for root in range(count):
        if order[root] >= 0:
            continue
        work: list[tuple[int, int]] = [(root, 0)]
        while work:
            task, edge = work.pop()
            if edge == 0:
                order[task] = low[task] = visits
                visits += 1
                path.append(task)
                on_path[task] = True
            else:
                low[task] = min(low[task], low[needs[task][edge - 1]])
            targets = needs[task]
            descend = False
            while edge < len(targets):
                target = targets[edge]
                edge += 1
                if order[target] < 0:
                    work.append((task, edge))
                    work.append((target, 0))
                    descend = True
                    break
                if on_path[target]:
                    low[task] = min(low[task], order[target])
            if descend:
                continue
            if low[task] == order[task]:
                component: list[int] = []
                while True:
                    member = path.pop()
                    on_path[member] = False
                    component.append(member)
                    if member == task:
                        break
                found.append(component)
    return found


def _shortest_cycle(
    start: int, members: frozenset[int], needs: Sequence[Sequence[int]]
) -> tuple[int, ...]:
    """Breadth first from `start` along needs, inside its component, back to `start`."""
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        task = queue.popleft()
        for need in needs[task]:
            if need == start and task != start:
                cycle = [task]
                while cycle[-1] != start:
                    cycle.append(came_from[cycle[-1]])
                return tuple(reversed(cycle))
            if need in members and need != start and need not in came_from:
                came_from[need] = task
                queue.append(need)
    raise AssertionError("a strongly connected component has a cycle through each of its members")
