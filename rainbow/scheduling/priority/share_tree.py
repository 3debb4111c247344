"""The share tree: whose turn it is, from the shares of each leaf and its recent usage.

    turns          the next job is of the leaf that has used least for its shares, level by level; each job is charged
                   before the one after it is chosen, so that usage converges to the shares whatever the jobs' sizes
    entitlements   Grid Engine's: what each leaf with jobs is owed. It converges to the shares where many small jobs
                   run side by side, and to the square of the shares where one job fills the cluster

Words of `entitlements`:

    ltt, oltt   target of a node by shares alone, within its parent and over all
    stt, ostt   the same corrected by usage: who has used less than its shares is owed more
    shr         shares² / usage

The leaf "default" stands for every owner who is not named in the tree, each with its shares.

Usage fades with a half-life and is kept in the policy's memory. It is what tasks held, by the record of them: those
that run until now, those that have ended until their end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from rainbow.scheduling.interface import View
from rainbow.scheduling.priority.model import Item, owners, read_asks
from rainbow.scheduling.priority.placement.lines import limit
from rainbow.scheduling.snapshot import Placement, RunView

LEAST_USAGE = 1.0
DEFAULT = "default"


class Leaf(NamedTuple):
    """Whose jobs they are; either may be a leaf's name. Below a node marked as a project only its jobs count."""

    project: str
    user: str


@dataclass(slots=True, eq=False)
class Node:
    """A node that has jobs at or below it.

    `queue` holds (place, charge) of a leaf's waiting jobs, `heap` the children with waiting jobs, the next one first.
    """

    shares: float
    usage: float = 0.0
    children: list[Node] = field(default_factory=list)
    leaf: Leaf | None = None
    owed: float = 0.0
    queue: deque[tuple[int, float]] = field(default_factory=deque)
    heap: list[tuple[float, int, Node]] = field(default_factory=list)

    @property
    def rank(self) -> float:
        """Return its usage for each of its shares, halfway through its next job, so that its jobs' sizes even out.

        What has used next to nothing is not put off for the size of its job.
        """
        step = self.queue[0][1] if self.queue else 0.0
        return (self.usage + min(step / 2, self.usage)) / self.shares if self.shares else inf


def turns(
    tree: Mapping[str, Any], waiting: Sequence[tuple[Leaf, float]], usage: Mapping[str, float], compensation: float
) -> list[int]:
    """Return the places of waiting jobs (leaf, charge) in the order of their turns, of those the tree has.

    >>> tree = {"name": "root", "children": [{"name": "a", "shares": 3.0}, {"name": "b", "shares": 1.0}]}
    >>> a, b = (Leaf("", "a"), 1.0), (Leaf("", "b"), 1.0)
    >>> turns(tree, [b, b, a, a, a, a], {}, 0.0)
    [2, 0, 3, 4, 5, 1]
    """
    root = _build(tree, sorted({leaf for leaf, _ in waiting}), usage, _named(tree))
    if root is None:
        return []
    _line_up(root, waiting)
    _set_heaps(root, compensation)
    result = []
    while root.heap or root.queue:
        result.append(_next(root))
    return result


def _line_up(root: Node, waiting: Sequence[tuple[Leaf, float]]) -> None:
    """Put every waiting job in the queue of the first node that is its leaf."""
    queues: dict[Leaf, deque[tuple[int, float]]] = {}
    for node in _nodes(root):
        if node.leaf is not None:
            queues.setdefault(node.leaf, node.queue)
    for place, (leaf, charge) in enumerate(waiting):
        if leaf in queues:
            queues[leaf].append((place, charge))


def _nodes(root: Node) -> list[Node]:
    """Return a node and all below it, each before its children."""
    result, stack = [], [root]
    while stack:
        node = stack.pop()
        result.append(node)
        stack.extend(reversed(node.children))
    return result


def _set_heaps(root: Node, compensation: float) -> None:
    """Order the children of every node, those below it first."""
    for node in reversed(_nodes(root)):
        total, shares = sum(child.usage for child in node.children), sum(child.shares for child in node.children)
        for child in node.children if compensation and shares else ():
            child.usage = max(child.usage, total * child.shares / shares / compensation)
        ready = [child for child in node.children if child.queue or child.heap]
        node.heap = [(child.rank, place, child) for place, child in enumerate(ready)]
        heapify(node.heap)


def _next(root: Node) -> int:
    """Take the next job off its queue and charge all nodes above it."""
    path = [root]
    while path[-1].heap:
        path.append(path[-1].heap[0][-1])
    place, charge = path[-1].queue.popleft()
    for parent, child in reversed(list(pairwise(path))):
        child.usage += charge
        if child.queue or child.heap:
            heapreplace(parent.heap, (child.rank, parent.heap[0][1], child))
        else:
            heappop(parent.heap)
    return place


def entitlements(
    tree: Mapping[str, Any], leaves: Iterable[Leaf], usage: Mapping[str, float], compensation: float
) -> dict[Leaf, float]:
    """Return what each leaf is owed; over all leaves the tree has, that is 1."""
    requirements = sorted(set(leaves))
    root = _build(tree, requirements, usage, _named(tree))
    if root is None:
        return {}
    root.owed = 1.0
    result: dict[Leaf, float] = {}
    stack = [(root, 1.0)]
    while stack:
        node, target = stack.pop()
        if node.leaf is not None:
            result[node.leaf] = result.get(node.leaf, 0.0) + node.owed
        stack.extend(_divide(node, target, compensation))
    return result


def _divide(node: Node, target: float, compensation: float) -> list[tuple[Node, float]]:
    """Set what the children of a node are owed; return them with their targets by shares alone."""
    total = sum(child.shares for child in node.children)
    if not total:
        return []
    targets = [target * child.shares / total for child in node.children]
    weights = [
        child.shares**2 / max(child.usage, LEAST_USAGE * own) if child.shares else 0.0
        for child, own in zip(node.children, targets, strict=True)
    ]
    owed = [node.owed * weight / sum(weights) for weight in weights]
    if compensation:
        most = [compensation * own for own in targets]
        weights = [w / (o / m) if m and o > m else w for w, o, m in zip(weights, owed, most, strict=True)]
        owed = [node.owed * weight / sum(weights) for weight in weights]
    for child, part in zip(node.children, owed, strict=True):
        child.owed = part
    return list(zip(node.children, targets, strict=True))


def _build(
    options: Mapping[str, Any], leaves: Sequence[Leaf], usage: Mapping[str, float], named: set[str]
) -> Node | None:
    """Return the tree of the nodes that have jobs, None if there are none."""
    name, below = options["name"], options.get("children", [])
    if below:
        inside = [leaf for leaf in leaves if leaf.project == name] if options.get("project") else leaves
        children = [node for child in below for node in _children(child, inside, usage, named)]
        total = sum(child.usage for child in children)
        return Node(options.get("shares", 1.0), total, children) if children else None
    results = [leaf for leaf in leaves if name in (leaf.user, leaf.project)]
    if not results:
        return None
    return _leaf(options, results, usage)


def _leaf(options: Mapping[str, Any], leaves: Sequence[Leaf], usage: Mapping[str, float]) -> Node:
    """Return one node for all jobs a leaf's name stands for; several owners share it evenly."""
    children = [Node(1.0, usage.get(key(leaf), 0.0), [], leaf) for leaf in leaves]
    if len(children) == 1:
        children[0].shares = options.get("shares", 1.0)
        return children[0]
    return Node(options.get("shares", 1.0), sum(child.usage for child in children), children)


def _children(
    options: Mapping[str, Any], leaves: Sequence[Leaf], usage: Mapping[str, float], named: set[str]
) -> list[Node]:
    if options["name"] == DEFAULT and not options.get("children"):
        others = [leaf for leaf in leaves if leaf.user not in named and leaf.project not in named]
        return [_leaf(options, [leaf], usage) for leaf in others]
    node = _build(options, leaves, usage, named)
    return [node] if node is not None else []


def _named(tree: Mapping[str, Any]) -> set[str]:
    """Return the names of all leaves, the one that stands for all else left out."""
    names, stack = set(), [tree]
    while stack:
        node = stack.pop()
        below = node.get("children", [])
        stack.extend(below)
        if not below:
            names.add(node["name"])
    return names - {DEFAULT}


def key(leaf: Leaf) -> str:
    """Name a leaf in what is kept of its usage."""
    return f"{leaf.project}/{leaf.user}"


NOTHING = 1e-9
USUAL = 3600.0  # seconds a job runs on average, while none has ended
REMEMBERED = 100  # ends that the average length is of, about
LEAST = 1.0  # of what is charged for a second, so that jobs without what is counted take turns too


def decayed(used: float, seconds: float, halftime: float) -> float:
    """Return what is left of usage after some seconds; without a half-life (0) all of it."""
    return used * 0.5 ** (seconds / halftime) if halftime else used


def counted(view: View, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the memory of usage, {"at", "used"}, brought up to now with what ran since the last time."""
    earlier = view.memory.get("usage", {})
    at = min(earlier.get("at", view.now), view.now)
    options = settings["tickets"]
    halftime = options["halftime"] * 3600
    used = {name: decayed(value, view.now - at, halftime) for name, value in earlier.get("used", {}).items()}
    for run, end in _spans(view):
        seconds = max(0.0, end - max(at, run.started))
        more = decayed(rate(run.placement, options["usage_weights"]) * seconds, view.now - end, halftime)
        used[name_of(run)] = used.get(name_of(run), 0.0) + more
    return {"at": view.now, "used": {name: value for name, value in sorted(used.items()) if value > NOTHING}}


def lengths(view: View) -> dict[str, float]:
    """Return the memory of lengths: the `mean` of what has ended, in seconds, and of how many `ends` that is."""
    earlier = view.memory.get("lengths", {})
    mean, ends = earlier.get("mean", USUAL), earlier.get("ends", 0)
    for ran in view.ended:
        ends = min(ends + 1, REMEMBERED)
        mean += (max(0.0, ran.end - ran.run.started) - mean) / ends
    return {"mean": mean, "ends": ends}


def _spans(view: View) -> Iterator[tuple[RunView, float]]:
    """Yield everything that has run since the last time, with its end so far."""
    for run in view.runs:
        yield run, view.now
    for ran in view.ended:
        yield ran.run, min(ran.end, view.now)


def expected(view: View, used: Mapping[str, float], length: float, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return usage with what running tasks will probably still use: as much again as they have, at least the average.

    Limits only bound that: they say little of lengths.
    """
    weights, result = settings["tickets"]["usage_weights"], dict(used)
    for run in view.runs:
        remaining = min(limit(run, settings) - view.now, max(length, view.now - run.started))
        more = max(LEAST, rate(run.placement, weights)) * max(0.0, remaining)
        result[name_of(run)] = result.get(name_of(run), 0.0) + more
    return result


def charge(item: Item, weights: Mapping[str, float], length: float) -> float:
    """Return what an item will probably use, if it runs as long as the average and not longer than its limit."""
    each = sum(group.least * weights.get(kind, 0.0) * n for group in item.groups for kind, n in group.amounts.items())
    return max(LEAST, each) * min(item.duration, length)


def rate(placement: Placement, weights: Mapping[str, float]) -> float:
    """Return what a placement uses in a second."""
    return sum(weights.get(kind, 0.0) * amount for held in placement.values() for kind, amount in held.items())


def name_of(run: RunView) -> str:
    """Name the owner of a task in what is kept of usage."""
    return key(leaf_of(owners(run.job, run.requestor, read_asks(run))))


def leaf_of(of: Mapping[str, str]) -> Leaf:
    """Name the leaf of a share tree that stands for an owner."""
    return Leaf(of["project"], of["user"])
