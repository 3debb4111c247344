"""A second opinion on matching for small graphs: every way to serve a request is tried, one after another.

It reads a cluster's graph and a request in normal form and shares no code with the searches it judges. A way to
serve a request says for every unit of it where it is:

    hold    a vertex somebody stands on, or takes with all that it contains, and by which requests (its chain)
    draw    an amount in base units that some leaves have to give together

Two holds are in each other's way if both stand on one vertex, or if one takes whole what the other is in or on;
only what is asked for below a request that takes its vertex whole is inside that vertex. Draws are met together if
the leaves have enough for all of them at once (a flow).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from math import inf

from rainbow.jobspec.hostlist import expand_hosts, expand_ids
from rainbow.jobspec.version import in_range

FACTORS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
MOST_STEPS = 40_000


class TooLargeError(Exception):
    """There are too many ways to try them all."""


def measure(unit):
    """Return (quantity, base units per unit)."""
    return ("byte", FACTORS[unit]) if unit in FACTORS else (unit, 1)


class Graph:
    """A cluster's vertices in plain form."""

    def __init__(self, cluster):
        graph = cluster.graph
        self.data = {vertex: graph.nodes[vertex] for vertex in graph}
        self.parent = {below: above for above, below in graph.edges}
        self.children = {vertex: list(graph.successors(vertex)) for vertex in graph}
        self.root = cluster.root
        self.worker_type, self.levels = cluster.worker_type, cluster.worker_level_types
        self.above = {vertex: self._above(vertex) for vertex in graph}  # itself included
        self.below = {v: {w for w in graph if v in self.above[w]} for v in graph}
        self.named = cluster.worker_names
        self.worker = {
            vertex: next((w for w in reversed(self.above[vertex]) if w in self.named), None) for vertex in graph
        }
        self.subsystems = {
            name: {at: [sub.graph.nodes[v] for v in hung] for at, hung in sub.attached.items()}
            for name, sub in cluster.subsystems.items()
        }
        self.mixed = {}
        self.compound = {self.data[v]["type"] for v in graph if self.children[v]}
        self.largest = {}
        for leaf in self.leaves():
            kind = self.pool(leaf)
            self.largest[kind] = max(self.largest.get(kind, 1), measure(self.data[leaf]["unit"])[1])
            self.mixed.setdefault(kind[0], set()).add(kind[1])

    def _above(self, vertex):
        results = [vertex]
        while results[-1] in self.parent:
            results.append(self.parent[results[-1]])
        return results

    def leaves(self):
        """The vertices that contain nothing."""
        return [vertex for vertex in self.data if not self.children[vertex]]

    def pool(self, leaf):
        """What a leaf's amount is counted in."""
        return self.data[leaf]["type"], measure(self.data[leaf]["unit"])[0]

    def amount(self, vertex):
        """The size of a vertex in base units."""
        return self.data[vertex]["size"] * measure(self.data[vertex]["unit"])[1]

    def each(self, resource, vertex):
        """Base units of a vertex that are one unit of a request; None where they cannot be compared."""
        measured, factor = measure(self.data[vertex]["unit"])
        if not resource.unit:
            return self.largest.get((resource.type, measured), factor)
        requirement, each = measure(resource.unit)
        return each if requirement == measured else None

    def gives(self, resource, vertex):
        """Units of a request that a whole vertex has, fractions of them too.

        Only where leaves of the type measure several quantities, which no unit can add, whole units count.
        """
        units = Fraction(self.amount(vertex), self.each(resource, vertex))
        return int(units) if not resource.unit and len(self.mixed.get(resource.type, ())) > 1 else units

    def meets(self, needs, vertex):
        """Whether each need is met by something hung on a vertex, above it or inside it."""
        near = {*self.above[vertex], *self.below[vertex]}
        return all(
            any(
                all(_answers(condition, row) for condition in need.conditions)
                for at, rows in self.subsystems.get(need.subsystem, {}).items()
                if at in near
                for row in rows
            )
            for need in needs
        )

    def passes(self, constraint, vertex):
        """Whether a worker satisfies a constraint."""
        if constraint is None:
            return True
        data, inner = self.data[vertex], [self.passes(one, vertex) for one in constraint.operands]
        if constraint.operator == "and":
            return all(inner)
        if constraint.operator == "or":
            return any(inner) or not inner
        if constraint.operator == "not":
            return not all(inner)
        if constraint.operator == "properties":
            return all((v.lstrip("^") in data["properties"]) != v.startswith("^") for v in constraint.values)
        if constraint.operator == "hostlist":
            return any(data["name"] in expand_hosts(text, 1000) for text in constraint.values)
        return any(data["rank"] in expand_ids(text, 1000) for text in constraint.values)


def _answers(condition, row):
    options = condition.options
    key = options["field"]
    value = row["metadata"].get(key, row.get(key) if key in ("type", "name", "size", "unit") else None)
    if condition.matcher == "flat" and row["type"] == f"{key}={options['value']}":
        return True
    if condition.matcher in ("match", "flat"):
        return value == options["value"]
    return value is not None and in_range(value, options.get("min"), options.get("max")) is True


@dataclass(frozen=True)
class Hold:
    """A vertex stood on, or taken whole."""

    vertex: str
    whole: bool
    chain: tuple  # the numbers of the requests that are inside each other, the outermost first


@dataclass(frozen=True)
class Draw:
    """An amount that the leaves give together, on behalf of a chain of requests."""

    leaves: tuple
    amount: int
    chain: tuple


@dataclass
class Used:
    """What earlier copies hold: base units by leaf, and vertices taken whole."""

    amounts: dict = field(default_factory=dict)
    whole: set = field(default_factory=set)

    def add(self, vertices, graph):
        """Take what a copy holds: {vertex: base units}, whole subtrees by their top."""
        for vertex, amount in vertices.items():
            if graph.children[vertex]:
                self.whole.add(vertex)
            else:
                self.amounts[vertex] = self.amounts.get(vertex, 0) + amount


@dataclass(frozen=True)
class Goal:
    """One instance of a request still to be served below a scope. `place`: a worker, OUT, or None for anywhere."""

    resource: object
    scope: str
    place: object
    chain: tuple
    hosted: bool


OUT = "outside every worker"


class Oracle:
    """Answers for one cluster and one constraint. `only`: nothing but this may be taken ({vertex: base units})."""

    def __init__(self, cluster, constraint=None, used=None, only=None, free=None):
        self.graph = Graph(cluster)
        self.used = used or Used()
        self.only = only
        self.barred = {
            v
            for v in self.graph.named
            if not self.graph.passes(constraint, v) or (free is not None and self.graph.named[v] not in free)
        }
        self.taken_at = {v for v, n in self.used.amounts.items() if n} | self.used.whole
        self.steps = 0
        self.numbers = 0

    def matches(self, resources):
        """Whether there is a way to serve all of `resources` at once."""
        goals = [goal for r in resources for goal in self._goals(r, self.graph.root, None, (), False)]
        return self._is_enough(resources) and self._serve(goals, [], [])

    def _is_enough(self, resources):
        """Compare totals, whatever is taken: a request stands on vertices of its own type."""
        requirements = {}
        stack = [(r, 1) for r in resources]
        while stack:
            r, times = stack.pop()
            times *= r.count.min
            if not r.is_slot:
                requirements[r.type, r.unit] = requirements.get((r.type, r.unit), 0) + times
            stack.extend((child, times) for child in r.children)
        return all(self._total(kind, unit) >= units for (kind, unit), units in requirements.items())

    def _total(self, kind, unit):
        graph, (measured, each) = self.graph, measure(unit)
        own = [v for v in graph.data if graph.data[v]["type"] == kind]
        if not unit:
            return sum(graph.data[v]["size"] for v in own)
        if any(measure(graph.data[v]["unit"])[0] != measured for v in own):
            return inf  # they cannot be compared
        return sum(graph.amount(v) for v in own) // each

    # ── one goal after another ──

    def _goals(self, r, scope, place, chain, hosted):
        """The instances of a request: units of one without children are one goal, everything else one goal each."""
        if not r.is_slot and not r.children:
            return [Goal(r, scope, place, self._inside(chain), hosted)]
        return [Goal(r, scope, place, self._inside(chain), hosted) for _ in range(r.count.min)]

    def _inside(self, chain):
        self.numbers += 1
        return (*chain, self.numbers)

    def _serve(self, goals, holds, draws):
        self._step()
        if not goals:
            return self._flows(holds, draws)
        goal, *rest = goals
        ways = self._slot if goal.resource.is_slot else self._stand if goal.resource.children else self._take
        return any(
            self._serve([*more, *rest], [*holds, *new], [*draws, *drawn])
            for more, new, drawn in ways(goal)
            if self._apart(holds, new)
        )

    def _step(self):
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise TooLargeError

    def _slot(self, goal):
        graph = self.graph
        children, needs = self._divided(goal)
        within = goal.hosted and graph.worker[goal.scope] is not None
        placed = [child for child in children if child.type in graph.levels and not within]
        spread = [child for child in children if not any(child is one for one in placed)]

        def posted(place):
            below = [(child, goal.scope if place in (None, OUT) else place, place) for child in placed]
            below += [(child, goal.scope, goal.place) for child in spread]
            return [
                g
                for child, scope, at in below
                for g in self._goals(child, scope, at, goal.chain, goal.hosted if at in (None, OUT) else False)
            ]

        if not placed and not needs:
            yield posted(None), [], []
            return
        for worker in graph.named if goal.place is not OUT else ():
            may_use = self._may_use(worker, goal, takes=bool(placed))
            if graph.worker[worker] == worker and may_use and graph.meets(needs, worker):
                yield posted(worker), [], []
        loose = any(graph.worker[leaf] is None and leaf in graph.below[goal.scope] for leaf in graph.leaves())
        if loose and graph.meets(needs, graph.root):
            yield posted(OUT), [], []

    def _divided(self, goal):
        """What a slot takes, with the needs that belong to it, and the needs that belong to the slot's place."""
        r, graph = goal.resource, self.graph
        if any(child.type == graph.worker_type for child in r.children):
            return _needing(r.children, r.needs, lambda child: child.type == graph.worker_type), ()
        if goal.hosted:
            return r.children, ()
        if r.children and not any(child.type in graph.levels for child in r.children):
            return _needing(r.children, r.needs, lambda child: True), ()
        return r.children, r.needs

    def _may_use(self, vertex, goal, takes=True):
        graph = self.graph
        if vertex not in graph.below[goal.scope] or (vertex == goal.scope and goal.hosted):
            return False
        if goal.place is OUT and graph.worker[vertex] is not None:
            return False
        is_free = not takes or not any(v in self.used.whole for v in graph.above[vertex])
        return self.barred.isdisjoint(graph.above[vertex]) and is_free

    def _of_type(self, goal):
        """The topmost vertices of a type."""
        results = [
            v for v in self.graph.data if self.graph.data[v]["type"] == goal.resource.type and self._may_use(v, goal)
        ]
        return [v for v in results if not any(other != v and other in self.graph.above[v] for other in results)]

    def _untouched(self, vertex):
        return not (self.graph.below[vertex] & self.taken_at)

    def _stand(self, goal):
        r, graph = goal.resource, self.graph
        needs = r.needs + tuple(need for child in r.children for need in _of_slots(child, graph.worker_type))
        for vertex in self._of_type(goal):
            whole_is_free = self._untouched(vertex) and (self.only is None or vertex in self._whole_of_only(vertex))
            if graph.meets(needs, vertex) and (whole_is_free or not r.exclusive):
                place = goal.place if goal.place is OUT else None
                below = [g for child in r.children for g in self._goals(child, vertex, place, goal.chain, True)]
                yield below, [Hold(vertex, r.exclusive, goal.chain)], []

    def _whole_of_only(self, vertex):
        return {v for v in self.graph.above[vertex] if v in self.only and self.only[v] >= self.graph.amount(v)}

    def _take(self, goal):
        r, graph, units = goal.resource, self.graph, goal.resource.count.min
        fits = [v for v in self._of_type(goal) if graph.each(r, v) and graph.meets(r.needs, v)]
        whole = [v for v in fits if (r.exclusive or graph.children[v]) and self._untouched(v)]
        if self.only is not None:
            whole = [v for v in whole if self._whole_of_only(v)]
        leaves = [] if r.exclusive else [v for v in fits if not graph.children[v]]
        for size in range(len(whole) + 1):
            for chosen in combinations(whole, size):
                self._step()
                sizes = [graph.gives(r, v) for v in chosen]
                remaining = units - sum(sizes)
                if not all(sizes) or any(remaining + one <= 0 for one in sizes):
                    continue  # one of them would do nothing
                holds = [Hold(v, True, self._inside(goal.chain)) for v in chosen]
                for draws in self._draws(r, leaves, max(remaining, 0), goal.chain):
                    yield [], holds, draws

    def _draws(self, r, leaves, units, chain):
        """Ways to draw units: of comparable leaves together, in base units."""
        if not units:
            yield []
            return
        pools = {}
        for leaf in leaves:
            pools.setdefault(self.graph.pool(leaf), []).append(leaf)
        if len(pools) == 1:
            amount = units * self.graph.each(r, leaves[0])
            if amount <= sum(self._left(leaf) for leaf in leaves):
                yield [Draw(tuple(leaves), int(amount), chain)]
            return
        for split in _splits(units, [min(units, self._most(r, own)) for own in pools.values()]):
            yield [
                Draw(tuple(own), many * self.graph.each(r, own[0]), chain)
                for own, many in zip(pools.values(), split, strict=True)
                if many
            ]

    def _most(self, r, leaves):
        return sum(self._left(leaf) for leaf in leaves) // self.graph.each(r, leaves[0])

    def _left(self, leaf):
        remaining = self.graph.amount(leaf) - self.used.amounts.get(leaf, 0)
        if self.only is None or any(v != leaf for v in self._whole_of_only(leaf)):
            return remaining
        return min(remaining, self.only.get(leaf, 0))

    # ── what goes together ──

    def _apart(self, holds, new):
        every = [*holds, *new]
        return not any(self._clash(one, other) for one in every for other in new if one is not other)

    def _clash(self, one, other):
        if one.vertex == other.vertex and not (one.whole or other.whole):
            return True
        return self._swallows(one, other) or self._swallows(other, one)

    def _swallows(self, whole, other):
        inside = other.vertex in self.graph.below[whole.vertex]
        return whole.whole and inside and other.chain[: len(whole.chain)] != whole.chain

    def _flows(self, holds, draws):
        """Whether all draws are met at once, each by leaves nobody else has taken whole."""
        wholes = [hold for hold in holds if hold.whole]
        edges = [
            [
                leaf
                for leaf in draw.leaves
                if not any(
                    leaf in self.graph.below[hold.vertex] and draw.chain[: len(hold.chain)] != hold.chain
                    for hold in wholes
                )
            ]
            for draw in draws
        ]
        return flows(
            [draw.amount for draw in draws], edges, {leaf: self._left(leaf) for own in edges for leaf in own}
        )


def _needing(children, needs, request):
    return [replace(c, needs=c.needs + needs) if needs and request(c) else c for c in children]


def _of_slots(child, worker_type):
    """The needs of a slot, and of slots in it, that belong to the vertex the slot is on."""
    if not child.is_slot:
        return ()
    own = () if any(c.type == worker_type for c in child.children) else child.needs
    return own + tuple(need for c in child.children for need in _of_slots(c, worker_type))


def _splits(units, most):
    """Every way to divide units among parts that give no more than `most` each."""
    if not most:
        if not units:
            yield ()
        return
    for here in range(max(0, units - sum(most[1:])), min(units, most[0]) + 1):  # the others give the rest
        for rest in _splits(units - here, most[1:]):
            yield (here, *rest)


def flows(requirement, edges, remaining):
    """Whether every demand gets all it wants of the leaves it may draw on.

    >>> flows([2, 1], [["a", "b"], ["a"]], {"a": 1, "b": 2}), flows([2, 1], [["a"], ["a"]], {"a": 2})
    (True, False)
    """
    options = {}  # (demand, leaf) → amount
    for demand, amount in enumerate(requirement):
        while amount:
            path = _path(demand, edges, remaining, options)
            if path is None:
                return False
            backwards = [options[path[k + 1], path[k]] for k in range(1, len(path) - 1, 2)]
            step = min(amount, remaining[path[-1]], *backwards)
            for k in range(0, len(path), 2):
                options[path[k], path[k + 1]] = options.get((path[k], path[k + 1]), 0) + step
            for k in range(1, len(path) - 1, 2):
                options[path[k + 1], path[k]] -= step
            remaining[path[-1]] -= step
            amount -= step
    return True


def _path(demand, edges, remaining, options):
    """A way from a demand to a leaf with something left: demand, leaf, demand that gives it up, leaf, ..."""
    queue, seen = deque([(demand,)]), {("demand", demand)}
    while queue:
        path = queue.popleft()
        for leaf in edges[path[-1]]:
            if ("leaf", leaf) in seen:
                continue
            seen.add(("leaf", leaf))
            if remaining[leaf]:
                return (*path, leaf)
            for other in range(len(edges)):
                if options.get((other, leaf)) and ("demand", other) not in seen:
                    seen.add(("demand", other))
                    queue.append((*path, leaf, other))
    return None
