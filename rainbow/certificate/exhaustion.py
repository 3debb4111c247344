"""Every way to meet a request on a small cluster, tried one after another: whether a refusal is right.

    goal    a request of which some are still to be met, below a vertex
    hold    a vertex used or taken whole, and the chain of requests that it is for
    draw    base units that some leaves give together, and the chain

What is taken whole leaves nothing to others; only what is asked for below a request that has its vertex alone is in
it. Equal goals are met in ascending order of their vertices: another order is the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from rainbow.certificate.bounds import Bounds, divided, needs_of
from rainbow.jobspec.quantities import quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rainbow.certificate.bounds import Nodes
    from rainbow.jobspec import Need, Resource

MOST_VERTICES = 24
MOST_STEPS = 200_000
OUTSIDE = -1  # the place of a slot that is in no worker
Chain = tuple[int, ...]


class TooManyError(Exception):
    """There are too many ways to try them all."""


class Goal(NamedTuple):
    """A number of one request below `scope`, in a slot's `place` (a worker, OUTSIDE, or None: anywhere)."""

    r: Resource
    left: int
    first: int  # the lowest vertex that may be chosen
    scope: int
    place: int | None
    chain: Chain
    hosted: bool
    needs: tuple[Need, ...] = ()  # of the slot that it is in


class Hold(NamedTuple):
    """A vertex used, or taken whole."""

    vertex: int
    whole: bool
    chain: Chain


class Draw(NamedTuple):
    """An amount that some leaves give together."""

    leaves: tuple[int, ...]
    amount: int
    chain: Chain


class Exhaustion:
    """Tries all ways to meet requests on nodes that are one vertex each."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes, self.bounds = nodes, Bounds(nodes)
        self.steps = self.numbers = 0
        self.above: list[list[int]] = []  # of each node, itself first
        for n, up in enumerate(nodes.parents):
            self.above.append([n, *(self.above[up] if up >= 0 else [])])

    def is_possible(self, resources: Sequence[Resource]) -> bool:
        """Return whether all requests are met at once in some way; TooManyError where there are too many."""
        return self._serve([goal for r in resources for goal in self._goals(r, 0, None, (), False)], [], [])

    def _goals(
        self, r: Resource, scope: int, place: int | None, chain: Chain, hosted: bool, needs: tuple[Need, ...] = ()
    ) -> list[Goal]:
        return [Goal(r, r.count.min, 0, scope, place, chain, hosted, needs)]

    def _inside(self, chain: Chain) -> Chain:
        self.numbers += 1
        return (*chain, self.numbers)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooManyError

    def _serve(self, goals: list[Goal], holds: list[Hold], draws: list[Draw]) -> bool:
        self._step()
        if not goals:
            return self._flows(holds, draws)
        goal, rest = goals[0], goals[1:]
        ways = self._slot if goal.r.is_slot else self._use if goal.r.children else self._take
        for more, new, drawn in ways(goal):
            clash = any(self._clash(one, other) for other in new for one in [*holds, *new] if one is not other)
            if clash or ((new or drawn) and draws and not self._flows([*holds, *new], [*draws, *drawn])):
                continue
            if self._serve([*more, *rest], [*holds, *new], [*draws, *drawn]):
                return True
        return False

    # ── ways to meet a goal: further goals, what is held, what is drawn ──

    def _slot(self, goal: Goal) -> Iterator[tuple[list[Goal], list[Hold], list[Draw]]]:
        nodes, chain = self.nodes, self._inside(goal.chain)
        spread, placed, needs = divided(goal.r, goal.hosted, nodes.cluster, goal.needs)
        if goal.hosted and nodes.in_worker[goal.scope]:
            spread, placed, needs = [*spread, *placed], [], ()
        after = [goal._replace(left=goal.left - 1)] if goal.left > 1 else []
        anywhere = [
            one
            for child, own in spread
            for one in self._goals(child, goal.scope, goal.place, chain, goal.hosted, own)
        ]
        if not placed and not needs:
            yield [*anywhere, *after], [], []
            return
        shut = nodes.is_shut if placed else nodes.is_barred
        for n in range(goal.first, len(nodes.ids)) if goal.place != OUTSIDE else ():
            inside = goal.scope in self.above[n] and not (goal.hosted and n == goal.scope)
            if inside and nodes.is_place[n] and not shut[n] and nodes.meets(needs, n):
                there = [one for child, own in placed for one in self._goals(child, n, n, chain, False, own)]
                yield [*there, *anywhere, *(one._replace(first=n) for one in after)], [], []
        if self._is_loose(goal.scope) and nodes.meets(needs, 0):
            there = [
                one
                for child, own in placed
                for one in self._goals(child, goal.scope, OUTSIDE, chain, goal.hosted, own)
            ]
            yield [*there, *anywhere, *(one._replace(first=len(nodes.ids)) for one in after)], [], []

    def _is_loose(self, scope: int) -> bool:
        nodes = self.nodes
        own = range(len(nodes.ids))
        return any(nodes.is_leaf[n] and not nodes.in_worker[n] and scope in self.above[n] for n in own)

    def _of_type(self, goal: Goal) -> list[int]:
        """Return the vertices of a goal's type that may be used: leaves wherever they lie, others the topmost."""
        nodes, result = self.nodes, list[int]()
        needs = (*needs_of(goal.r, nodes.cluster.worker_type), *goal.needs)
        for n in range(goal.first, len(nodes.ids)):
            if nodes.fields[n].type != goal.r.type or nodes.is_shut[n] or goal.scope not in self.above[n]:
                continue
            if (goal.hosted and n == goal.scope) or (goal.place == OUTSIDE and nodes.in_worker[n]):
                continue
            between = self.above[n][1 : self.above[n].index(goal.scope) + (0 if goal.hosted else 1)]
            is_inner = any(nodes.fields[k].type == goal.r.type for k in between)
            divisible = nodes.is_leaf[n] and not (goal.r.exclusive or needs or goal.r.children)
            if (divisible or not is_inner) and nodes.meets(needs, n):
                result.append(n)
        return result

    def _use(self, goal: Goal) -> Iterator[tuple[list[Goal], list[Hold], list[Draw]]]:
        place = OUTSIDE if goal.place == OUTSIDE else None
        for n in self._of_type(goal):
            if goal.r.exclusive and self.nodes.touched[n]:
                continue
            chain = self._inside(goal.chain)
            below = [one for child in goal.r.children for one in self._goals(child, n, place, chain, True)]
            after = [goal._replace(left=goal.left - 1, first=n + 1)] if goal.left > 1 else []
            yield [*below, *after], [Hold(n, goal.r.exclusive, chain)], []

    def _take(self, goal: Goal) -> Iterator[tuple[list[Goal], list[Hold], list[Draw]]]:
        nodes, r, requirement = self.nodes, goal.r, self.bounds.wanted(goal.r)
        chain, fits = self._inside(goal.chain), self._of_type(goal)
        whole = [n for n in fits if (r.exclusive or not nodes.is_leaf[n]) and not nodes.touched[n]]
        sizes = {n: self.bounds.size(r, n) for n in whole}
        leaves = [n for n in fits if nodes.is_leaf[n] and not r.exclusive]
        for many in range(len(whole) + 1):
            for chosen in combinations(whole, many):
                self._step()
                remaining = requirement - sum(sizes[n] for n in chosen)
                if any(not sizes[n] or remaining + sizes[n] <= 0 for n in chosen):
                    continue  # without it there would be enough
                holds = [Hold(n, True, self._inside(chain)) for n in chosen]
                for draws in self._draws(r, leaves, max(remaining, 0), chain):
                    yield [], holds, draws

    def _draws(self, r: Resource, leaves: list[int], remaining: int, chain: Chain) -> Iterator[list[Draw]]:
        """Yield ways to draw what is left: together of leaves of one quantity, in whole units of several."""
        if not remaining:
            yield []
            return
        pools: dict[str, list[int]] = {}
        for n in leaves:
            measured, factor = quantity(self.nodes.fields[n].unit)
            if self.bounds.each(r, measured, factor) is not None:
                pools.setdefault(measured, []).append(n)
        each = {m: 1 if self.bounds.scale(r) != 1 else self.bounds.each(r, m, 1) or 1 for m in pools}
        most = [sum(self.nodes.free[n] for n in own) // each[m] for m, own in pools.items()]
        for split in _splits(remaining, most):
            parts = zip(split, pools.items(), strict=True)
            yield [Draw(tuple(own), units * each[m], chain) for units, (m, own) in parts if units]

    # ── what goes together ──

    def _clash(self, one: Hold, other: Hold) -> bool:
        if one.vertex == other.vertex and not (one.whole or other.whole):
            return True
        return self._swallows(one, other.vertex, other.chain) or self._swallows(other, one.vertex, one.chain)

    def _swallows(self, hold: Hold, n: int, chain: Chain) -> bool:
        return hold.whole and hold.vertex in self.above[n] and chain[: len(hold.chain)] != hold.chain

    def _flows(self, holds: list[Hold], draws: list[Draw]) -> bool:
        """Return whether all draws are met at once by leaves that are not in what others take whole."""
        wholes = [hold for hold in holds if hold.whole]
        open_ones = [
            [n for n in draw.leaves if not any(self._swallows(hold, n, draw.chain) for hold in wholes)]
            for draw in draws
        ]
        free = {n: self.nodes.free[n] for own in open_ones for n in own}
        flows: dict[tuple[int, int], int] = {}
        return all(_gives(k, draw.amount, open_ones, free, flows) for k, draw in enumerate(draws))


def _splits(units: int, most: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield every way to divide units among parts that give no more than `most` each.

    >>> list(_splits(3, [2, 2]))
    [(1, 2), (2, 1)]
    """
    if not most:
        yield from [()] if not units else []
        return
    for here in range(max(0, units - sum(most[1:])), min(units, most[0]) + 1):
        for rest in _splits(units - here, most[1:]):
            yield (here, *rest)


Flows = dict[tuple[int, int], int]  # by draw and leaf


def _gives(k: int, amount: int, open_ones: list[list[int]], free: dict[int, int], flows: Flows) -> bool:
    """Draw an amount, letting earlier draws give way to other leaves (augmenting paths, Ford and Fulkerson)."""
    while amount:
        path = _path(k, open_ones, free, flows)
        if path is None:
            return False
        step = min(amount, free[path[-1]], *(flows[path[i + 1], path[i]] for i in range(1, len(path) - 1, 2)))
        for i in range(0, len(path), 2):
            flows[path[i], path[i + 1]] = flows.get((path[i], path[i + 1]), 0) + step
        for i in range(1, len(path) - 1, 2):
            flows[path[i + 1], path[i]] -= step
        free[path[-1]] -= step
        amount -= step
    return True


def _path(k: int, open_ones: list[list[int]], free: dict[int, int], flows: Flows) -> list[int] | None:
    """Return draw, leaf, the draw that gives it up, leaf, and so on, to a leaf that has something left."""
    paths, seen, reached = [[k]], {k}, set[int]()
    while paths:
        way = paths.pop(0)
        for leaf in open_ones[way[-1]]:
            if leaf in reached:
                continue
            if free[leaf]:
                return [*way, leaf]
            reached.add(leaf)
            others = [n for n in range(len(open_ones)) if flows.get((n, leaf)) and n not in seen]
            seen.update(others)
            paths.extend([*way, leaf, other] for other in others)
    return None
