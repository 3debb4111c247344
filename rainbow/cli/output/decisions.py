"""Decisions and explained matches, as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from rainbow.certificate.document import Certificate
from rainbow.cli.output.printer import amounts, clean, facts, table, words
from rainbow.text import natural

Document = Mapping[str, Any]


def draw_decision(console: Console, decision: Document) -> None:
    """Show candidates with what was computed for each, the chosen one marked, then the refusals."""
    selection = decision.get("selection") or {}
    computed = selection.get("values") or {}
    candidates = decision.get("candidates") or []
    if candidates:
        titles = ["CLUSTER", "FITS", "ONE COPY TAKES", "VALUE", "CHOSEN", ""]
        console.print(table(titles, _rows(candidates, computed, selection), wraps=True))
    draw_refusals(console, decision.get("refusals") or [])
    draw_refusals(console, decision.get("undecided") or [], "UNDECIDED")
    for which, many in (decision.get("more") or {}).items():
        if many:
            console.print(Text(f"... and {many} more {clean(which)}"))
    if decision.get("unattended"):
        console.print(Text(f"left out because no agent works for them: {clean(words(decision['unattended']))}"))
    if (decision.get("model") or {}).get("text"):
        console.print(Text(f"model of {clean(decision['model']['group'])}: {clean(decision['model']['text'])}"))
    if (decision.get("check") or {}).get("result") == "unchecked":
        console.print(Text("its site has not said whether it takes the job", style="yellow"))
    if decision.get("placed_by"):
        console.print(Text(f"chosen by {clean(decision['placed_by'])}"))
    draw_warnings(console, decision)


def draw_warnings(console: Console, decision: Document, of: str = "") -> None:
    """Show what is wrong with a jobspec that is no fault, and with how its cluster was chosen."""
    selection = decision.get("selection") or {}
    for warning in [*decision.get("warnings", []), *selection.get("warnings", [])]:
        console.print(Text(f"{clean(of)}warning: {clean(warning)}", style="yellow"))


def _rows(candidates: Sequence[Document], computed: Document, selection: Document) -> Iterator[list[Any]]:
    ranks, drops = selection.get("ranks") or {}, selection.get("drops") or {}
    for one in candidates:
        name = one["cluster"]
        yield [
            name,
            fits(one),
            takes(one),
            computed.get(name),
            ranks.get(name),
            "chosen" if name == selection.get("cluster") else drops.get(name, ""),
        ]


def draw_match(console: Console, answer: Document) -> None:
    """Show one line per cluster: how often the job fits, or why it does not."""
    rows = [[one["cluster"], "yes", f"fits {often(one)}"] for one in answer["candidates"]]
    rows += [[one["cluster"], "no", why_not(one)] for one in answer["refusals"]]
    rows += [[one["cluster"], "undecided", why_not(one)] for one in answer["undecided"]]
    rows.sort(key=lambda row: natural(row[0]))
    console.print(table(["CLUSTER", "MATCHES", "WHY"], rows))
    draw_warnings(console, answer)


def draw_refusals(console: Console, refusals: Sequence[Document], title: str = "INELIGIBLE") -> None:
    """Show why clusters cannot run the job."""
    if refusals:
        console.print(table([title, "REASON"], ([one["cluster"], why_not(one)] for one in refusals)))


def draw_steps(console: Console, selection: Document) -> None:
    """Show what selection did, step by step."""
    steps = selection.get("steps") or []
    if steps:
        console.print(table(["PRIORITY", "STEP", "VALUES", "DROPPED", "LEFT", "NOTE"], map(_step, steps), wraps=True))
    if selection.get("reason"):
        console.print(Text(f"selection by {selection.get('selector')}: {clean(selection['reason'])}"))


def _step(step: Document) -> list[Any]:
    did = f"{step['step']}: {step['argument']}"
    return [step["priority"], did, step["values"], step["dropped"], step["survivors"], step["note"]]


def draw_replay(console: Console, document: Document) -> None:
    """Show a decision taken again, and whether the same came of it."""
    named = {"job": document.get("number") or document["id"], "cluster": document["cluster"]}
    console.print(facts({**named, "again": document["replayed"]["cluster"], **document["digests"]}))
    draw_steps(console, document["replayed"])
    if document["graphs_changed_since"]:
        console.print(Text(f"graphs changed since the decision: {clean(words(document['graphs_changed_since']))}"))
    console.print(
        ("replay matches the recorded decision exactly")
        if document["equal"]
        else "replay differs from the recorded decision"
    )


def takes(candidate: Document) -> dict[str, Any]:
    """Return what one copy of the job takes, without what it takes none of."""
    return amounts(candidate.get("totals") or {}, candidate.get("units") or {})


def fits(candidate: Document) -> str:
    """Return how many copies fit, as far as it is known."""
    return f"{'' if candidate.get('fits_exact', True) else '≥ '}{candidate['fits']}"


def often(candidate: Document) -> str:
    """Return how often the job fits, and what that takes, in words."""
    taken = words(takes(candidate))
    return f"once: {taken}" if fits(candidate) == "1" else f"{fits(candidate)} times, using {taken} each time"


def why_not(refusal: Document) -> str:
    """Return the reason of a refusal in words."""
    return str(refusal.get("text") or refusal["reason"])


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
    text = why_not(one) if "reason" in one else "matches"
    tree = Tree(Text(clean(f"{one['cluster']}: {text}"), style="bold"))
    for part in explanation.get("tree", []):
        _grow(tree, part)
    if not explanation.get("complete", True):
        tree.add(Text("not all explained: the time for explaining ended", style="yellow"))
    console.print(tree)
    console.print(facts(_said(one, explanation)))


def _grow(tree: Tree, part: Document) -> None:
    mark = " ✗ blocks the match" if part["stopped"] else " ✗" if part["short"] else ""
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
        said["closest match"] = one["nearest"]
    if "change" in explanation:
        change = explanation["change"]
        said["would match if"] = change["text"] if change else "no change found"
    return said


def _some(paths: list[str]) -> str:
    more = [f"and {len(paths) - MOST_PATHS} more"] if len(paths) > MOST_PATHS else []
    return ", ".join([*paths[:MOST_PATHS], *more])


def draw_rows(console: Console, certificate: Certificate, names: Sequence[str]) -> None:
    """Draw a certificate, its requests by their names."""
    cells = []
    for n, row in enumerate(certificate.rows):
        below = "-" if row.up < 0 else str(row.up)
        vertex = "-" if row.vertex is None else row.vertex or "outside"
        name = names[row.request] if row.request < len(names) else f"request {row.request}"  # of a graph before
        cells.append([str(n), below, name, row.how, vertex, str(row.amount or "")])
    console.print(table(["ROW", "BELOW", "REQUEST", "HOW", "VERTEX", "AMOUNT"], cells))
