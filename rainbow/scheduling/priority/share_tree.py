"""The share tree: what each leaf with jobs is owed, from its shares and what it has used lately.

    ltt, oltt   target of a node by shares alone, within its parent and over all
    stt, ostt   the same corrected by usage: who has used less than its shares is owed more
    shr         shares² / usage

The leaf "default" stands for everybody who is not named in the tree, each with its shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LEAST_USAGE = 1.0
DEFAULT = "default"


class Leaf(NamedTuple):
    """Whose jobs they are; either may be a leaf's name. Below a node marked as a project only its jobs count."""

    project: str
    user: str


@dataclass(slots=True)
class Node:
    """A node that has jobs at or below it."""

    shares: float
    usage: float = 0.0
    children: list[Node] = field(default_factory=list)
    leaf: Leaf | None = None
    owed: float = 0.0


def entitlements(
    tree: Mapping[str, Any], leaves: Iterable[Leaf], usage: Mapping[str, float], compensation: float
) -> dict[Leaf, float]:
    """Return what each leaf is owed; over all leaves the tree has, that is 1."""
    wanted = sorted(set(leaves))
    root = _build(tree, wanted, usage, _named(tree))
    if root is None:
        return {}
    root.owed = 1.0
    found: dict[Leaf, float] = {}
    stack = [(root, 1.0)]
    while stack:
        node, target = stack.pop()
        if node.leaf is not None:
            found[node.leaf] = found.get(node.leaf, 0.0) + node.owed
        stack.extend(_divide(node, target, compensation))
    return found


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
    given: Mapping[str, Any], leaves: Sequence[Leaf], usage: Mapping[str, float], named: set[str]
) -> Node | None:
    """Return the tree of the nodes that have jobs, None if there are none."""
    name, below = given["name"], given.get("children", [])
    if below:
        inside = [leaf for leaf in leaves if leaf.project == name] if given.get("project") else leaves
        children = [node for child in below for node in _children(child, inside, usage, named)]
        total = sum(child.usage for child in children)
        return Node(given.get("shares", 1.0), total, children) if children else None
    found = [leaf for leaf in leaves if name in (leaf.user, leaf.project)]
    if not found:
        return None
    return _leaf(given, found, usage)


def _leaf(given: Mapping[str, Any], found: Sequence[Leaf], usage: Mapping[str, float]) -> Node:
    """Return one node for all jobs a leaf's name stands for; several owners share it evenly."""
    children = [Node(1.0, usage.get(key(leaf), 0.0), [], leaf) for leaf in found]
    if len(children) == 1:
        children[0].shares = given.get("shares", 1.0)
        return children[0]
    return Node(given.get("shares", 1.0), sum(child.usage for child in children), children)


def _children(
    given: Mapping[str, Any], leaves: Sequence[Leaf], usage: Mapping[str, float], named: set[str]
) -> list[Node]:
    if given["name"] == DEFAULT and not given.get("children"):
        others = [leaf for leaf in leaves if leaf.user not in named and leaf.project not in named]
        return [_leaf(given, [leaf], usage) for leaf in others]
    node = _build(given, leaves, usage, named)
    return [node] if node is not None else []


def _named(tree: Mapping[str, Any]) -> set[str]:
    """Return the names of all leaves, the one that stands for everybody else left out."""
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
