"""Hard requests: what they cost beside their budget, as they grow, and what explaining them costs."""

from __future__ import annotations

import time
from functools import partial

import rainbow
from benchmarks.timing import heading, once, row
from rainbow.matching import backends, prepare, shown_explained
from rainbow.matching.model.budget import Budget
from tests.support.hard_inputs import HARD, many_needs

SHARES = (4, 2, 1)  # parts of the full size
SLOTS = (300, 1_000, 3_000, 10_000)


def hard_requests() -> None:
    """Print verdict and time of each hard request at a quarter, half and all of its size; the budget is 1 s."""
    heading(
        "hard requests, ms of 1,000", "size", *(f"{backend} {what}" for backend in BACKENDS for what in ("", "ms"))
    )
    for name, (make, full) in HARD.items():
        print(name)
        for share in SHARES:
            cells: list[object] = [full // share]
            for backend in BACKENDS:
                request, cluster = make(full // share)
                prepare(cluster, backend)
                asking = partial(rainbow.match, request, [cluster], backend, Budget(time.thread_time))
                spent = once(asking)
                cells += [VERDICTS[asking()[0].matched], spent / 1e3]
            row(*cells)


def explaining() -> None:
    """Print what an explained match of many slots costs."""
    heading("match --explain, ms of 2,000", "slots", "ms", "complete")
    for slots in SLOTS:
        request, cluster = many_needs(slots)
        spent = once(partial(explained, request, cluster))
        row(slots, spent / 1e3, str(explained(request, cluster)["complete"]))


def explained(request: rainbow.Request, cluster: rainbow.Cluster) -> dict[str, object]:
    """Match and explain within a fresh budget each; return the explanation."""
    verdicts = rainbow.match(request, [cluster], budget=Budget(time.thread_time))
    answer = shown_explained(request, [cluster], verdicts, backends.get("index"), Budget(time.thread_time))
    every = [*answer["candidates"], *answer["refusals"], *answer["undecided"]]
    results: dict[str, object] = every[0]["explanation"]
    return results


BACKENDS = ("index", "networkx")
VERDICTS = {True: "yes", False: "no", None: "undecided"}


def main() -> None:
    """Run both."""
    hard_requests()
    explaining()
