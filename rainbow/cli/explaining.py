"""An explained match as people read it: a line per cluster, then for each the tree, the reason and what would do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from rainbow.cli.decisions import draw_match, why_not
from rainbow.cli.printing import clean, facts
from rainbow.graph.order import natural

Document = Mapping[str, Any]
MOST_PATHS = 8


def draw_explained(console: Console, answer: Document) -> None:
    """Show what draw_match shows, then the explanation of every cluster, in order of name."""
    draw_match(console, answer)
    every = [*answer["candidates"], *answer["refusals"], *answer["undecided"]]
    for one in sorted(every, key=lambda one: natural(one["cluster"])):
        console.print()
        _draw_one(console, one)


def _draw_one(console: Console, one: Document) -> None:
    explanation = one.get("explanation") or {}
    told = why_not(one) if "reason" in one else "matches"
    tree = Tree(Text(clean(f"{one['cluster']}: {told}"), style="bold"))
    for part in explanation.get("tree", []):
        _grow(tree, part)
    console.print(tree)
    console.print(facts(_said(one, explanation)))


def _grow(tree: Tree, part: Document) -> None:
    mark = " ✗ stopped here" if part["stopped"] else " ✗" if part["short"] else ""
    branch = tree.add(Text(clean(part["text"]) + mark, style="red" if mark else ""))
    for child in part["with"]:
        _grow(branch, child)


def _said(one: Document, explanation: Document) -> dict[str, Any]:
    """Say the reason with its numbers, the nearest miss, and the smallest change; or what would be held."""
    if "reason" not in one:
        return {"holds": _some(explanation.get("paths", []))}
    numbers = [f"{key} {one[key]}" for key in ("wanted", "found") if key in one]
    said = {"reason": f"{one['reason']}: {', '.join([one.get('subject', ''), *numbers])}".rstrip(": ")}
    if "nearest" in one:
        said["nearest miss"] = one["nearest"]
    if "change" in explanation:
        change = explanation["change"]
        said["smallest change"] = change["text"] if change else "none was found"
    return said


def _some(paths: list[str]) -> str:
    more = [f"and {len(paths) - MOST_PATHS} more"] if len(paths) > MOST_PATHS else []
    return ", ".join([*paths[:MOST_PATHS], *more])
