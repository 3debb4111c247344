"""The depth-first search: demands are met in turn, most demanding first, and undone when stuck.

    agenda   a demand and the rest of the agenda: nothing left means met
    group    equal candidates below one parent: any k of them are as good as any other k
    orbit    candidates that are equal wherever they stand; if one of them leads nowhere, none of them does

Divisible amounts are promised at once (see trail.py); only whole vertices, vertices for requests with children,
and places of slots are choices. The search keeps its own stack, so no graph is too deep for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any, NamedTuple

from rainbow.jobspec import Count
from rainbow.matching.model.budget import FREE, Meter
from rainbow.matching.model.layout import OUTSIDE, pools_of
from rainbow.matching.upper_bound import UpperBound

if TYPE_CHECKING:
    from collections.abc import Collection

    from rainbow.jobspec import Resource
    from rainbow.matching.model.layout import Layout, Pool
    from rainbow.matching.slots import Plan
    from rainbow.matching.trail import Trail


class GoalStack(NamedTuple):
    """What is still to be met. Its demands look between positions `first` and `last`.

    What is left of a demand does not count: it never takes what was chosen for the demand's other units.
    """

    demand: Goal
    rest: Any  # a GoalStack, or () for nothing
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Promised:
    """An amount owed by the leaves below a demand's scope, in base units; `factor` of them are one unit of it."""

    demand: Goal
    pool: Pool
    amount: int
    factor: int
    done: int  # units of the request before these


@dataclass(frozen=True, slots=True)
class Chosen:
    """A vertex chosen for a demand, whole or to stand on."""

    demand: Goal
    position: int
    whole: bool
    tier: RequestCopies | None = None  # what is chosen for a request with children, or is a slot's place


def before(demand: Goal, rest: Any, layout: Layout) -> GoalStack:
    """Put a demand on an agenda."""
    scope, end = demand.scope, layout.last[demand.scope]
    if not rest:
        return GoalStack(demand, (), scope, end)
    return GoalStack(demand, rest, min(scope, rest.first), max(end, rest.last))


def leaving(goal: Goal, rest: Any, layout: Layout) -> Any:
    """Put what is left of a demand on an agenda."""
    if not goal.units:
        return rest
    return GoalStack(goal, rest, *((rest.first, rest.last) if rest else (len(layout), 0)))


def contended(demand: Goal, rest: Any, layout: Layout) -> bool:
    """Return whether others still look where a demand looks."""
    return bool(rest) and rest.first < layout.last[demand.scope] and demand.scope < rest.last


@dataclass(frozen=True, slots=True, eq=False)
class RequestCopies:
    """`copies` of one request that are alike below others: slots, or one vertex in use."""

    request: Resource
    above: Owner
    copies: int


class Owner(NamedTuple):
    """Number first..first+copies-1 of what a demand is below; `tier` None is the job itself."""

    tier: RequestCopies | None
    first: int
    copies: int

    def of(self, number: int, copies: int) -> int:
        """Return which of these owns number `number` of the copies that they share."""
        return self.first + min(number * self.copies // copies, self.copies - 1)


JOB = Owner(None, 0, 1)


@dataclass(frozen=True, slots=True)
class Goal:
    """`units` of `request` at positions `first` and after below `scope`, `done` of them placed already."""

    request: Resource
    units: int
    scope: int
    first: int
    owner: Owner
    outside: bool = False  # only what lies outside every worker may serve
    done: int = 0
    cursor: int = 0  # candidates before it are decided
    closed: frozenset[Any] = frozenset()  # groups of equal candidates that are decided

    @property
    def each(self) -> int:
        """Units one slot (or the job) wants."""
        return max(1, self.request.count.min)

    def rank(self, compound: Collection[str]) -> tuple[int, int, int]:
        """Sort key, most demanding first: nested, then whole (`compound` types contain others), then by units."""
        return (-depth(self.request), 0 if takes_whole(self.request, compound) else 1, -self.units)

    def less(self, units: int, cursor: int, closed: Any = None) -> Goal:
        """Return what is left after `units` are placed and a group of candidates is closed."""
        groups = self.closed if closed is None else self.closed | {closed}
        return replace(self, units=self.units - units, done=self.done + units, cursor=cursor, closed=groups)


def takes_whole(request: Resource, compound: Collection[str]) -> bool:
    """Return whether a request, or one in its slot, takes vertices with all they contain."""
    if request.is_slot:
        return any(takes_whole(child, compound) for child in request.children)
    return request.exclusive or (not request.children and request.type in compound)


def depth(request: Resource) -> int:
    """How deep a request nests; slots are no level."""
    deepest: dict[int, int] = {}
    for node in reversed(list(request.walk())):
        below = max((deepest[child.number] for child in node.children), default=0)
        deepest[node.number] = below + (0 if node.is_slot else 1)
    return deepest[request.number]


MOST_ORDERS = 24  # in which the pools of one type (amounts in units that cannot be compared) are drawn on

STUCK = None


class Search:
    """One search over what is not taken; `promised` and `chosen` hold its answer. It follows a plan for slots."""

    def __init__(self, layout: Layout, taken: Trail, meter: Meter = FREE, plan: Plan | None = None) -> None:
        self.layout = layout
        self.taken = taken
        self.bound = UpperBound(layout, taken, meter=meter)
        self.free = {i: taken.room(i, layout.pool(i)) for i, _ in taken.less if layout.is_leaf(i)}
        self.meter = meter
        self.plan = plan or {}
        self.promised: list[Promised] = []
        self.chosen: list[Chosen] = []
        self.slots: list[RequestCopies] = []

    def meet(self, resources: tuple[Resource, ...], done: Callable[[], bool]) -> bool:
        """Meet all of `resources` at once so that `done` agrees; OutOfBudgetError if that takes too long."""
        opening = self._post(resources, 0, 0, JOB, False, ())
        if opening is STUCK:
            return False
        if not opening:
            return done()
        stack = [self._moves(opening)]
        while stack:
            agenda = next(stack[-1], STUCK)
            self.meter.step()
            if agenda is STUCK:
                stack.pop()
            elif agenda:
                stack.append(self._moves(agenda))
            elif done():
                return True
        return False

    # ── from requests to demands ──

    def _post(
        self, siblings: tuple[Resource, ...], scope: int, first: int, owner: Owner, outside: bool, rest: Any
    ) -> Any:
        """Put siblings on the agenda, most demanding first; promise at once what leaves no choice."""
        goals = self._demands(siblings, scope, first, owner, outside)
        demands = sorted(goals, key=lambda d: d.rank(self.layout.compound), reverse=True)
        for demand in demands:
            self.meter.step()
            if self._has_choice(demand):
                rest = before(demand, rest, self.layout)
            elif not self._promise(demand):
                return STUCK
        return rest

    def _demands(
        self, siblings: tuple[Resource, ...], scope: int, first: int, owner: Owner, outside: bool
    ) -> Iterator[Goal]:
        for r in siblings:
            self.meter.step()
            if r.is_slot:
                tier = RequestCopies(r, owner, r.count.min * owner.copies)
                self.slots.append(tier)
                slots = Owner(tier, 0, tier.copies)
                divided = self.bound.divided(r, scope, first > scope)
                yield from self._demands(divided.spread, scope, first, slots, outside)
                if divided.has_place:
                    placed = replace(r, children=divided.placed, needs=divided.needs)
                    yield Goal(placed, slots.copies, scope, first, slots, outside)
            else:
                yield from self._by_slot(r, scope, first, owner, outside)

    def _by_slot(self, r: Resource, scope: int, first: int, owner: Owner, outside: bool) -> Iterator[Goal]:
        """Demand what each owner wants of a request; one vertex is not taken whole for two of them."""
        units = self.bound.for_one_slot(r) if owner.copies > 1 else r.count.min
        if units is None:
            for number in range(owner.copies):
                one = owner._replace(first=owner.first + number, copies=1)
                yield Goal(r, r.count.min, scope, first, one, outside)
        else:
            requirement = r if units == r.count.min else replace(r, count=Count(units, units))
            yield Goal(requirement, units * owner.copies, scope, first, owner, outside)

    def _has_choice(self, demand: Goal) -> bool:
        r = demand.request
        several = len(list(pools_of(r, self.layout.pools))) > 1
        return bool(r.children or r.is_slot or r.exclusive or r.needs or r.type in self.layout.compound or several)

    def _promise(self, demand: Goal, pools: Sequence[tuple[Pool, int]] | None = None) -> bool:
        """Owe a divisible demand to its scope, as much of it as there is from one pool after the other."""
        remaining = demand.units
        for pool, factor in pools or list(pools_of(demand.request, self.layout.pools)):
            units = min(remaining, self.bound.in_pool(pool, demand.scope, demand.outside) // factor)
            if units:
                remaining -= units
                done = demand.done + demand.units - remaining - units
                self.promised.append(Promised(demand, pool, units * factor, factor, done))
                if not (self.taken.promise(demand.scope, pool, units * factor) and self._outside_kept(demand, pool)):
                    return False
        return not remaining

    def _outside_kept(self, demand: Goal, pool: Pool) -> bool:
        if not demand.outside or self.layout.is_leaf(demand.scope):
            return True
        owed = sum(
            p.amount for p in self.promised if p.demand.outside and p.pool == pool and p.demand.scope == demand.scope
        )
        leaves = self.layout.outside(pool, demand.scope)
        return owed <= sum(self.taken.room(i, pool) for i in leaves if self.taken.open(i, demand.scope))

    # ── choices ──

    def _moves(self, agenda: GoalStack) -> Iterator[Any]:
        demand, rest = agenda.demand, agenda.rest
        if rest or not demand.done:  # what others took may have left too little
            requirement, at = demand.units, demand.outside
            if self.bound.available(demand.request, demand.scope, demand.first, at, requirement) < requirement:
                return iter(())
        if demand.request.is_slot:
            return self._place_slots(demand, rest)
        return self._stand(demand, rest) if demand.request.children else self._take_pieces(demand, rest)

    def _stand(self, demand: Goal, rest: Any) -> Iterator[Any]:
        """Choose the vertices for a request with children, groups of equal ones at once."""
        candidates = self.bound.hosts(demand.request, demand.scope, max(demand.first, demand.cursor), demand.outside)
        for group, orbit in self._groups(demand, candidates, tight=contended(demand, rest, self.layout)):
            for many in range(min(demand.units, len(group)), 0, -1):
                yield from self._try(partial(self._stand_on, demand, group[:many], group, rest))
            demand = replace(demand, closed=demand.closed | {orbit})

    def _stand_on(self, demand: Goal, vertices: list[int], group: list[int], rest: Any) -> Any:
        goal = demand.less(len(vertices), self._after(vertices, demand, rest), self._closed(vertices, group))
        rest = leaving(goal, rest, self.layout)
        for k, i in reversed(list(enumerate(vertices))):
            self.meter.step()
            if demand.request.exclusive and not (self.taken.take_whole(i) and (i or not rest)):
                return STUCK  # what has the root alone leaves nothing to its siblings
            self.taken.hold(i)
            above = Owner(demand.owner.tier, demand.owner.first + (demand.done + k) // demand.each, 1)
            tier = RequestCopies(demand.request, above, 1)
            self.chosen.append(Chosen(replace(demand, owner=above), i, demand.request.exclusive, tier))
            owner = Owner(tier, 0, 1)
            rest = self._post(demand.request.children, i, i + 1, owner, demand.outside, rest)
            if rest is STUCK:
                return STUCK
        return rest

    def _take_pieces(self, demand: Goal, rest: Any) -> Iterator[Any]:
        """Choose whole vertices (or leaves with needs) for a request without children, then divisible leaves."""
        r = demand.request
        candidates = self.bound.pieces(r, demand.scope, max(demand.first, demand.cursor), demand.outside)
        for group, orbit in self._groups(demand, candidates, tight=contended(demand, rest, self.layout)):
            each = self.bound.units(r, group[0])
            for many in range(min(-(-demand.units // each), len(group)) if each else 0, 0, -1):
                yield from self._try(partial(self._take, demand, group[:many], group, each, rest))
            demand = replace(demand, closed=demand.closed | {orbit})
        if not (r.exclusive or r.needs):
            for pools in islice(permutations(pools_of(r, self.layout.pools)), MOST_ORDERS):
                yield from self._try(partial(self._promise_in, demand, pools, rest))

    def _promise_in(self, demand: Goal, pools: Sequence[tuple[Pool, int]], rest: Any) -> Any:
        return rest if self._promise(demand, pools) else STUCK

    def _take(self, demand: Goal, vertices: list[int], group: list[int], each: int, rest: Any) -> Any:
        whole = demand.request.exclusive or not self.layout.is_leaf(vertices[0])
        goal = demand.less(
            min(demand.units, each * len(vertices)),
            self._after(vertices, demand, rest),
            self._closed(vertices, group),
        )
        for k, i in enumerate(vertices):
            self.meter.step()
            part = replace(demand, done=demand.done + k * each, units=min(each, demand.units - k * each))
            if whole:
                self.chosen.append(Chosen(part, i, True))
                if not self.taken.take_whole(i):
                    return STUCK
            elif not self._promise(replace(part, scope=i, first=i)):
                return STUCK
        return leaving(goal, rest, self.layout)

    def _place_slots(self, demand: Goal, rest: Any) -> Iterator[Any]:
        """Give slots their places, as many as a place holds first."""
        slot = demand.request
        if planned := self.plan.get(slot.place):
            yield from self._try(partial(self._place, demand, *planned[demand.done], rest))
            return
        first = max(demand.first, demand.cursor)
        for place, outside in self.bound.places(slot.children, slot.needs, demand.scope, first, demand.outside):
            orbit = (outside, *self._orbit(place))
            if orbit in demand.closed:
                continue
            most = self.bound.capacity(slot.children, place, outside, demand.units)
            for many in range(most, 0, -1):
                yield from self._try(partial(self._place, demand, place, outside, many, rest))
            demand = replace(demand, closed=demand.closed | {orbit})

    def _place(self, demand: Goal, place: int, outside: bool, many: int, rest: Any) -> Any:
        end = self.layout.last[place]
        goal = demand.less(many, end)
        owner = demand.owner._replace(first=demand.owner.first + demand.done, copies=many)
        at = OUTSIDE if outside else place
        self.chosen.append(Chosen(replace(demand, owner=owner), at, False, owner.tier))
        if demand.request.children and not outside and place:
            self.taken.touch(self.layout.parents[place])  # what contains the place cannot be taken whole any more
        return self._post(demand.request.children, place, place, owner, outside, leaving(goal, rest, self.layout))

    def _try(self, move: Callable[[], Any]) -> Iterator[Any]:
        """Make a move, hand on the agenda it leaves, and take the move back afterwards."""
        mark, promised, chosen, slots = self.taken.mark(), len(self.promised), len(self.chosen), len(self.slots)
        agenda = move()
        if agenda is not STUCK:
            yield agenda
        self.taken.undo(mark)
        del self.promised[promised:], self.chosen[chosen:], self.slots[slots:]

    # ── equal candidates ──

    def _groups(self, demand: Goal, candidates: Iterator[int], tight: bool) -> Iterator[tuple[list[int], Any]]:
        """Yield runs of equal candidates below one parent, no longer than is wanted, and their orbit.

        Lowest first, or while others still have to be met (`tight`) those that contain least.
        """
        seen = set(demand.closed)
        candidates = iter(sorted(candidates, key=self._weight)) if tight else candidates
        for i in candidates:
            key, orbit = self._group_key(i), self._orbit(i)
            if key not in seen and orbit not in seen:
                yield self._run(i, key, demand.units), orbit
                seen.add(orbit)

    def _run(self, first: int, key: Any, most: int) -> list[int]:
        run: list[int] = []
        for i in self.layout.of_type(self.layout.types[first], first, self.layout.last[self.layout.parents[first]]):
            if len(run) == most or self._group_key(i) != key:
                break
            run.append(i)
        return run or [first]

    def _closed(self, taken: list[int], run: list[int]) -> Any:
        """Name what is decided once only a part of a run is taken: nothing equal is taken later either."""
        return self._group_key(run[0]) if len(taken) < len(run) else None

    def _after(self, taken: list[int], demand: Goal, rest: Any) -> int:
        """Return where candidates continue: behind what is taken, if they are met lowest first."""
        return 0 if contended(demand, rest, self.layout) else self.layout.last[taken[-1]]

    def _weight(self, i: int) -> tuple[int, int]:
        return (self.layout.weight(i), i)

    def _group_key(self, i: int) -> tuple[Any, ...]:
        return ("below", self.layout.parents[i], self._state(i))

    def _orbit(self, i: int) -> tuple[Any, ...]:
        return tuple(self._state(at) for at in self.layout.up(i))

    def _state(self, i: int) -> int:
        """Equal for equal untouched subtrees, its own for every other vertex."""
        if self.taken.untouched(i) and i not in self.taken.marked:
            return self.layout.kinds[i]
        return -1 - i
