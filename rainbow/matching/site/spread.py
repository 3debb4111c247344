"""Slots and resources that nodes give together → those of each node of one cluster.

`total` slots, what the job has `within: job`, hardware threads, one model on each node, and `counts` of properties
are decided by the kinds of nodes. The answer is a request of plain nodes, each with its own number of slots: every
backend, policy and agent understands it, and a search on the cluster has the last word.

groups   nodes that give alike: their kind, what each gives (capacity.py), the counted properties they have
state    (nodes, slots, shares..., counts...): what the groups so far give together, cut off at what is asked
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rainbow.jobspec.request import CONTAINMENT, PROPERTIES, SLOT, Condition, Count, Need, Resource
from rainbow.matching.site.capacity import Capacity, NodeRequest, Point, counted, with_model

if TYPE_CHECKING:
    from rainbow.matching.equivalence.cluster_class import ClusterClass
    from rainbow.matching.equivalence.subtree_classes import SubtreeClass

MOST_STATES = 20_000
MOST_NODES = 100_000
Forest = tuple[Resource, ...]
State = tuple[int, ...]


class TooManyWaysError(Exception):
    """The ways to spread a request over nodes are more than are looked at."""


@dataclass(frozen=True)
class Group:
    """Nodes of one kind, how many there are, and the points that each can give."""

    capacity: Capacity
    many: int
    points: Sequence[Point]
    has: tuple[int, ...]  # 1 for each counted property that they have


@dataclass(frozen=True)
class GroupShare:
    """Nodes of a group that give one point each."""

    group: Group
    nodes: int
    point: Point


def spread(
    forest: Forest,
    rooted: ClusterClass,
    workers: Mapping[SubtreeClass, int],
    counts: Mapping[str, int],
    most_nodes: int | None = None,
) -> Forest | None:
    """Return the forest in plain words for the nodes that pass, None if they cannot give it.

    `most_nodes` bounds the nodes of the whole job. Raises TooManyWaysError where the ways are too many to look at.
    """
    shares = tuple(tree for tree in forest if tree.within)
    trees = [tree for tree in forest if not tree.within]
    made: list[Resource] = []
    for place, tree in enumerate(trees):
        own = shares if place == 0 else ()
        wish, low, high, total = _wish_of(tree, own, rooted.worker_type, most_nodes is not None or bool(counts))
        if wish is None:
            made.append(_plain(tree, workers))
            continue
        high = high if most_nodes is None else min(high, most_nodes)
        result = _spread(wish, low, high, total, rooted, workers, counts)
        if result is None:
            return None
        made += result
    return tuple(made)


def at_least(forest: Forest, rooted: ClusterClass, workers: Mapping[SubtreeClass, int]) -> Forest:
    """Return a plain request for no more than a forest asks for: its least nodes, each with one of what is spread."""
    made: list[Resource] = []
    threads = max((kind.threads for kind in workers), default=1)
    for tree in (tree for tree in forest if not tree.within):
        wish, low, _, _ = _wish_of(tree, (), rooted.worker_type, False)
        if wish is None or not wish.is_flat:
            made.append(_plain(tree, workers))
        elif tree.is_slot:
            made.append(replace(tree, children=tuple(_counted(part, threads) for part in tree.children), at_most=()))
        else:
            slot = wish.slot and replace(wish.slot, count=Count(wish.slots or 1, wish.slots or 1), total=False)
            inside = tuple(_counted(part, threads) for part in slot.children) if slot else ()
            slots = [replace(slot, children=inside, at_most=())] if slot else []
            beside = [_counted(part, threads) for part in wish.beside]
            made.append(replace(wish.node, count=Count(low, low), children=(*slots, *beside)))
    return tuple(made)


def _counted(part: Resource, threads: int) -> Resource:
    return replace(counted(part, -(-part.count.min // threads) if part.cpus else part.count.min), same="")


def _plain(tree: Resource, workers: Mapping[SubtreeClass, int]) -> Resource:
    """Return a tree without nodes above its slots, its cpus as cores."""
    threads = min((kind.threads for kind in workers), default=1)
    if not any(part.is_spread for part in tree.walk()):
        return tree
    count = tree.count
    if tree.cpus:
        least = -(-count.min // threads)
        count = Count(least, least) if count.min == count.max else replace(count, min=least)
    inside = tuple(_plain(child, workers) for child in tree.children)
    return replace(tree, count=count, cpus=False, same="", at_most=(), children=inside)


def _wish_of(
    tree: Resource, shares: Forest, worker_type: str, bounded: bool
) -> tuple[NodeRequest | None, int, int, int]:
    """Return what each node is asked for, how many nodes there may be, and the slots in all (0: as many as each)."""
    spreads = shares or bounded or any(part.is_spread for part in tree.walk())
    if not spreads:
        return None, 0, 0, 0
    if tree.type == worker_type:
        slots = [child for child in tree.children if child.is_slot]
        if len(slots) > 1 or any(part.type == worker_type for child in tree.children for part in child.walk()):
            return None, 0, 0, 0
        slot = slots[0] if slots else None
        beside = tuple(child for child in tree.children if not child.is_slot)
        high = tree.count.max if tree.count.max is not None else MOST_NODES
        total = slot.count.min if slot and slot.total else 0
        each = 0 if total or not slot else slot.count.min
        return NodeRequest(tree, slot, each, beside, shares), tree.count.min, min(high, total or high), total
    if tree.is_slot and not any(part.is_slot or part.type == worker_type for c in tree.children for part in c.walk()):
        node, many = Resource(worker_type), tree.count.min
        return NodeRequest(node, tree, 0, (), shares), 1, many, many
    if tree.is_slot and len(tree.children) == 1 and tree.children[0].type == worker_type:
        inner, low, high, total = _wish_of(tree.children[0], shares, worker_type, bounded)
        if inner is None or inner.slot or tree.count.min != 1:
            return None, 0, 0, 0
        return replace(inner, slot=replace(tree, children=inner.beside), beside=(), slots=1), low, high, 0
    return None, 0, 0, 0


def _spread(
    wish: NodeRequest,
    low: int,
    high: int,
    total: int,
    rooted: ClusterClass,
    workers: Mapping[SubtreeClass, int],
    counts: Mapping[str, int],
) -> Forest | None:
    if not wish.is_flat:
        return _nested(wish, low, total, rooted, workers)
    most = (total or wish.slots or 1, *(share.count.min for share in wish.shares))
    high = min([high, *(share.count.min for share in wish.shares), sum(workers.values())])
    groups = []
    for kind, many in workers.items():
        capacity = Capacity(wish, kind, rooted.pools)
        if points := capacity.points(most):
            groups.append(Group(capacity, many, points, tuple(int(name in kind.properties) for name in counts)))
    requests = (total, *(share.count.min for share in wish.shares), *counts.values())
    chosen = _choose(groups, low, high, requests)
    return None if chosen is None else _trees(wish, _levelled(chosen, requests, len(wish.shares)), groups, counts)


def _choose(groups: Sequence[Group], low: int, high: int, request: State) -> list[GroupShare] | None:
    """Return the fewest nodes that give what is asked together, those that give most first."""
    if len(request) == 1 or all(n == 0 for n in request[1:]):  # only slots: the largest nodes give most
        return _largest_first(groups, low, high, request)
    best: dict[State, list[GroupShare]] = {(0,) * (1 + len(request)): []}
    for group in groups:
        more = dict(best)
        for state, choice in best.items():
            for point in group.points:
                for nodes in range(1, min(group.many, high - state[0]) + 1):
                    gains = (*(nodes * n for n in point), *(nodes * n for n in group.has))
                    reached = tuple(min(a + b, n) for a, b, n in zip(state[1:], gains, request, strict=True))
                    key = (state[0] + nodes, *reached)
                    if key not in more:
                        more[key] = [*choice, GroupShare(group, nodes, point)]
                    if len(more) > MOST_STATES:
                        raise TooManyWaysError
        if any(len(group.points) > 1 for group in groups):
            more = _mixed(more, group, high, request)
        best = _undominated(more)
    enough = [key for key in best if low <= key[0] <= high and key[1:] == request]
    return best[min(enough)] if enough else None


def _mixed(
    states: dict[State, list[GroupShare]], group: Group, high: int, request: State
) -> dict[State, list[GroupShare]]:
    """Add the states in which nodes of one group give different points."""
    front = dict(states)
    while front:
        fresh: dict[State, list[GroupShare]] = {}
        for state, choice in front.items():
            used = sum(one.nodes for one in choice if one.group is group)
            if used == group.many or state[0] == high:
                continue
            for point in group.points:
                gains = (*point, *group.has)
                reached = tuple(min(a + b, n) for a, b, n in zip(state[1:], gains, request, strict=True))
                key = (state[0] + 1, *reached)
                if key not in states and key not in fresh:
                    fresh[key] = [*choice, GroupShare(group, 1, point)]
        states |= fresh
        if len(states) > MOST_STATES:
            raise TooManyWaysError
        front = fresh
    return states


def _undominated(states: dict[State, list[GroupShare]]) -> dict[State, list[GroupShare]]:
    by_nodes: dict[int, list[State]] = defaultdict(list)
    for state in states:
        by_nodes[state[0]].append(state)
    stored = {}
    for alike in by_nodes.values():
        for state in alike:
            if not any(o != state and all(a >= b for a, b in zip(o, state, strict=True)) for o in alike):
                stored[state] = states[state]
    return stored


def _largest_first(groups: Sequence[Group], low: int, high: int, request: State) -> list[GroupShare] | None:
    chosen: list[GroupShare] = []
    nodes = slots = 0
    for group in sorted(groups, key=lambda one: -one.points[0][0]):
        point = group.points[0]
        short = max(low - nodes, -(-(request[0] - slots) // point[0]) if request[0] > slots else 0)
        take = min(group.many, short, high - nodes)
        if take > 0:
            chosen.append(GroupShare(group, take, point))
            nodes, slots = nodes + take, slots + take * point[0]
    return chosen if low <= nodes <= high and slots >= request[0] else None


def _levelled(chosen: Sequence[GroupShare], request: State, shares: int) -> Iterator[tuple[GroupShare, Point, int]]:
    """Yield how many nodes give how much, so that together they give exactly what is asked: the first ones most."""
    remaining = [*request[: 1 + shares]]
    nodes = sum(choice.nodes for choice in chosen)
    for choice in chosen:
        run: list[Point] = []
        for _ in range(choice.nodes):
            nodes -= 1
            point = tuple(
                min(n, remaining[axis] - nodes) if request[axis] else n
                for axis, n in enumerate(choice.point[: 1 + shares])
            )
            for axis, n in enumerate(point):
                remaining[axis] -= n
            run.append(point)
        begin = 0
        for at in range(1, len(run) + 1):
            if at == len(run) or run[at] != run[begin]:
                yield choice, run[begin], at - begin
                begin = at


def _trees(
    wish: NodeRequest,
    spreading: Iterator[tuple[GroupShare, Point, int]],
    groups: Sequence[Group],
    counts: Mapping[str, int],
) -> Forest:
    """Write each run of nodes that give alike as a request of plain nodes."""
    threads = {group.capacity.kind.threads for group in groups}
    mixed = any(len(group.capacity.models(part.type)) > 1 for group in groups for part in wish.parts if part.same)
    results: dict[tuple[object, ...], Resource] = {}
    for choice, point, nodes in spreading:
        capacity = choice.group.capacity
        parts = _of_one_model(wish, capacity, point) if mixed else wish
        tree = _node(parts, capacity, point)
        needs = list(tree.needs)
        if len(threads) > 1 and capacity.kind.threads > 1:
            needs.append(_own(tree.type, "threads", str(capacity.kind.threads)))
        needs += [
            Need(PROPERTIES, (Condition("match", {"field": "property", "value": name}),))
            for name, has in zip(counts, choice.group.has, strict=True)
            if has
        ]
        tree = replace(tree, needs=tuple(needs))
        key = (repr(tree.children), repr(tree.needs))
        known = results.get(key)
        many = nodes + (known.count.min if known else 0)
        results[key] = replace(known or tree, count=Count(many, many))
    return tuple(results.values())


def _own(type_: str, field: str, value: str) -> Need:
    conditions = (("type", type_), (field, value))
    return Need(CONTAINMENT, tuple(Condition("match", {"field": f, "value": v}) for f, v in conditions))


def _of_one_model(wish: NodeRequest, capacity: Capacity, point: Point) -> NodeRequest:
    """Return the wish with the models that a node of a kind can give it."""
    slots = point[0]
    inside = wish.slot.children if wish.slot else ()
    units = [
        *(capacity.cores(part, slots) for part in inside),
        *(capacity.cores(part, 1) for part in wish.beside),
        *point[1:],
    ]
    chosen = [(part, n) for part, n in zip(wish.parts, units, strict=True) if part.same or part.needs]
    models = iter(next(capacity.assignments(chosen), ()))
    named = {part.number: next(models, "") for part, _ in chosen}

    def settled(part: Resource) -> Resource:
        model = named.get(part.number, "") if part.same and not part.needs else ""
        return with_model(part, model) if model else replace(part, same="")

    slot = replace(wish.slot, children=tuple(map(settled, wish.slot.children))) if wish.slot else None
    return replace(wish, slot=slot, beside=tuple(map(settled, wish.beside)), shares=tuple(map(settled, wish.shares)))


def _node(wish: NodeRequest, capacity: Capacity, point: Point) -> Resource:
    """Return the request for one node that gives a point."""
    slots, shares = point[0], point[1:]
    beside = [counted(part, capacity.cores(part, 1)) for part in wish.beside]
    beside += [counted(part, n) for part, n in zip(wish.shares, shares, strict=True)]
    if wish.slot is None:
        return replace(wish.node, children=tuple(replace(part, same="") for part in beside))
    inside = wish.slot.children
    whole = any(part.cpus and part.count.min % capacity.kind.threads for part in inside) and slots > 1
    # slots that share a core are one slot of all their cores: no vertex is half a core
    many = 1 if whole else slots
    children = tuple(counted(part, capacity.cores(part, slots if whole else 1)) for part in inside)
    slot = replace(wish.slot, count=Count(many, many), total=False, at_most=(), children=children)
    return replace(wish.node, children=tuple(replace(part, same="") for part in (slot, *beside)))


def _nested(
    wish: NodeRequest, low: int, total: int, rooted: ClusterClass, workers: Mapping[SubtreeClass, int]
) -> Forest | None:
    """Return nodes whose parts lie in others, or hang on subsystems: with `total`, as many on each as on the next."""
    nodes = low if not total else max(low, 1)
    slots = -(-total // nodes) if total else wish.slots
    if wish.shares or total:
        raise TooManyWaysError
    tree = replace(wish.node, count=Count(nodes, wish.node.count.max))
    inside = (
        *((replace(wish.slot, count=Count(slots, slots)),) if wish.slot and wish.slot.type == SLOT else ()),
        *wish.beside,
    )
    return (_plain(replace(tree, children=inside), workers),)
