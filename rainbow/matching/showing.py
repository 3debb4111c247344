"""Verdicts as JSON: what the API answers and the command line prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rainbow.matching.explanation import explanations

if TYPE_CHECKING:
    from rainbow.graph import Cluster
    from rainbow.jobspec import Request
    from rainbow.matching.verdict import Backend, Verdict


def shown(request: Request, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Write verdicts: candidates, refusals and undecided clusters with their reasons, warnings about the jobspec."""
    candidates = [
        {"cluster": v.cluster, "fits": v.fits, "fits_exact": v.exact, "totals": dict(v.totals)}
        for v in verdicts
        if v.matched
    ]
    refusals = [{"cluster": v.cluster, **_reason(v)} for v in verdicts if v.matched is False]
    undecided = [{"cluster": v.cluster, **_reason(v)} for v in verdicts if v.matched is None]
    warnings = list(request.warnings)
    return {"candidates": candidates, "refusals": refusals, "undecided": undecided, "warnings": warnings}


def _reason(verdict: Verdict) -> dict[str, Any]:
    reason = verdict.reason
    if reason is None:
        return {"reason": "unknown"}
    facts = {"wanted": reason.wanted, "found": reason.found, "subject": reason.subject, **reason.facts}
    given = {key: value for key, value in facts.items() if value not in (None, "")}
    return {"reason": str(reason.why), "text": reason.text, **given}


def shown_explained(
    request: Request, clusters: Iterable[Cluster], verdicts: Sequence[Verdict], backend: Backend
) -> dict[str, Any]:
    """Write verdicts with an `explanation` each (explanation.py)."""
    found = explanations(request, clusters, verdicts, backend)
    answer = shown(request, verdicts)
    for one in [*answer["candidates"], *answer["refusals"], *answer["undecided"]]:
        one["explanation"] = found[one["cluster"]]
    return answer
