"""The picture of a decision: a row for each cluster, and how many clusters each step leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]


def drawn(decision: Document, most: int | None) -> dict[str, Any]:
    """Arrange a decision: a row for each cluster, the chosen one first, and how many each step of it leaves."""
    selection = decision.get("selection") or {}
    ranks, drops, values = (selection.get(key) or {} for key in ("ranks", "drops", "values"))
    rows = [
        {**one, "fit": True, "rank": ranks.get(name), "drop": drops.get(name, ""), "values": values.get(name) or {}}
        for one in decision.get("candidates") or ()
        for name in [one["cluster"]]
    ]
    rows.sort(key=lambda row: (row["cluster"] != selection.get("cluster"), row["rank"] is None, row["rank"] or 0))
    refused = [{**one, "fit": False} for one in decision.get("refusals") or ()]
    undecided = [{**one, "fit": None} for one in decision.get("undecided") or ()]
    every = [*rows, *refused, *undecided]
    return {
        "rows": every[:most],
        "more": len(every) - len(every[:most]),
        "steps": _steps(len(every), len(rows), selection.get("steps") or ()),
        "chosen": selection.get("cluster"),
        "selection": selection,
    }


def _steps(registered: int, match: int, steps: Sequence[Document]) -> list[dict[str, Any]]:
    """Return how many clusters each step leaves, as a number and as a share of all."""
    refused = f"{registered - match} do not" if registered > match else ""
    rows = [(registered, "looked at", ""), (match, "match", refused)]
    rows += [
        (len(step["survivors"]), f"{step['step']} {step['argument']}", step["note"] or _dropped(step))
        for step in steps
    ]
    return [{"left": left, "part": left / (registered or 1), "text": text, "note": note} for left, text, note in rows]


def _dropped(step: Document) -> str:
    return f"{len(step['dropped'])} dropped" if step["dropped"] else ""
