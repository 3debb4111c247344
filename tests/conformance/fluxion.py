"""What Fluxion answers on empty graphs, against strict levels; and what it runs, the default rule runs too.

`fits` must be Fluxion's where its three policies agree, else no less than its smallest. Cases that touch Fluxion's
defect with a level skipped before a slot are left out, and so are amounts with a unit under the default rule.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import rainbow
from rainbow.graph import Cluster
from rainbow.jobspec import Request
from rainbow.matching import match  # counts steps, not time: answers alike on a busy machine
from tests.conformance import Comparison, rows


def compare(folder: Path) -> Iterator[Comparison]:
    """Yield one comparison a case; graphs are in a file each, or all in graphs.jsonl."""
    packed = {row["path"]: row["graph"] for row in rows(folder, "graphs.jsonl")}

    @cache
    def cluster(path: str) -> Cluster:
        return rainbow.read_cluster(
            packed[path] if packed else json.loads((folder / path).read_text()), "case", levels="strict"
        )

    for row in rows(folder, "cases.jsonl"):
        if not row["skipped_level"]:
            wrong = list(_differences(_request(row["jobspec"]), cluster(row["graph"]), row))
            yield Comparison(f"case {row['id']}", not wrong, "; ".join(wrong))


def _request(jobspec: dict[str, Any]) -> Request:
    """Read the jobspec; some of the recorded ones name a slot in their tasks that their resources do not have."""
    has_slot = '"slot"' in json.dumps(jobspec["resources"])
    return rainbow.parse_jobspec(jobspec if has_slot else {**jobspec, "tasks": []})


def _differences(job: Request, strict: Cluster, row: dict[str, Any]) -> Iterator[str]:
    verdict = match(job, [strict])[0]
    if verdict.matched != row["satisfiable"]:
        reason = verdict.reason.text if verdict.reason else "matched"
        yield f"strict says {verdict.matched} ({reason}), recorded {row['satisfiable']}"
    counts = set(row["fits_by_policy"].values())
    if verdict.fits < min(counts) or (len(counts) == 1 and {verdict.fits} != counts):
        yield f"fits {verdict.fits} times, recorded {row['fits_by_policy']}"
    by_default = match(job, [replace(strict, levels="any")])[0]
    if row["satisfiable"] and "unit" not in row["features"] and not by_default.matched:
        yield f"the default rule refuses: {by_default.reason.text if by_default.reason else ''}"
