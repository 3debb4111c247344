"""`rainbow match` on files: how many clusters match each of many jobspecs, and why the others do not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from rainbow.cli.printing import table, words
from rainbow.graph import Cluster
from rainbow.jobspec import Request
from rainbow.matching import DEFAULT_BACKEND, Budget, backends, match, shown, shown_explained, smallest_change

Row = dict[str, Any]


def answer(request: Request, clusters: Sequence[Cluster], explain: bool) -> dict[str, Any]:
    """Answer one jobspec as the server does."""
    verdicts = match(request, clusters, budget=Budget(time.monotonic))
    if explain:
        return shown_explained(request, clusters, verdicts, backends.get(DEFAULT_BACKEND))
    return shown(request, verdicts)


def sweep(requests: Mapping[Path, Request], clusters: Sequence[Cluster], explain: bool) -> dict[str, Any]:
    """Match every jobspec with every cluster; count by jobspec and by folder of jobspecs."""
    rows = [{"jobspec": str(path), **_row(request, clusters, explain)} for path, request in requests.items()]
    folders: dict[str, list[Row]] = {}
    for path, row in zip(requests, rows, strict=True):
        folders.setdefault(str(path.parent), []).append(row)
    return {
        "clusters": len(clusters),
        "jobspecs": rows,
        "folders": [{"folder": folder, **_sum(inside)} for folder, inside in folders.items()],
    }


def _row(request: Request, clusters: Sequence[Cluster], explain: bool) -> Row:
    verdicts = match(request, clusters, budget=Budget(time.monotonic))
    refused = {v.cluster: str(v.reason.why) if v.reason else "unknown" for v in verdicts if v.matched is False}
    row = {
        "of": len(clusters),
        "matched": sum(1 for v in verdicts if v.matched),
        "candidates": [v.cluster for v in verdicts if v.matched],
        "refusals": _counts(refused.values()),
        "undecided": sum(1 for v in verdicts if v.matched is None),
    }
    return {**row, "changes": _changes(request, clusters, refused)} if explain else row


def _changes(request: Request, clusters: Iterable[Cluster], refused: Mapping[str, str]) -> dict[str, int]:
    backend = backends.get(DEFAULT_BACKEND)
    found = [smallest_change(cluster, request, backend) for cluster in clusters if cluster.name in refused]
    return _counts(change.text if change else "none found" for change in found)


def _counts(values: Iterable[str]) -> dict[str, int]:
    """Count values, the most frequent first."""
    return dict(sorted(Counter(values).items(), key=lambda item: (-item[1], item[0])))


def _sum(rows: Sequence[Row]) -> Row:
    summed: Row = {"jobspecs": len(rows), "of": sum(row["of"] for row in rows)}
    summed["matched"] = sum(row["matched"] for row in rows)
    summed["undecided"] = sum(row["undecided"] for row in rows)
    for key in ("refusals", "changes"):
        if key in rows[0]:
            summed[key] = _counts(value for row in rows for value, n in row[key].items() for _ in range(n))
    return summed


def draw_sweep(console: Console, swept: Mapping[str, Any]) -> None:
    """Show a line per jobspec, then a line per folder if there are several."""
    _draw(console, ["JOBSPEC"], ["jobspec"], swept["jobspecs"])
    if len(swept["folders"]) > 1:
        console.print()
        _draw(console, ["FOLDER", "JOBSPECS"], ["folder", "jobspecs"], swept["folders"])


def _draw(console: Console, titles: list[str], keys: list[str], rows: Sequence[Row]) -> None:
    titles, keys = [*titles, "MATCH", "OF", "WHY NOT"], [*keys, "matched", "of", "refusals"]
    if any(row["undecided"] for row in rows):
        titles, keys = [*titles, "UNDECIDED"], [*keys, "undecided"]
    if any("changes" in row for row in rows):
        titles, keys = [*titles, "SMALLEST CHANGE"], [*keys, "changes"]
    console.print(table(titles, [[_cell(row[key]) for key in keys] for row in rows]))


def _cell(value: Any) -> Any:
    """Write counts as "core ≤ 2: 48"."""
    if isinstance(value, Mapping):
        return words([f"{key}: {count}" for key, count in value.items()])
    return value
