"""Run every benchmark: each as it grows, beside a stated rival in the same run."""

from __future__ import annotations

import rainbow
from benchmarks import matching
from benchmarks.agents import running_tasks
from benchmarks.host import hosting
from benchmarks.load_based import planning
from benchmarks.shares import sharing
from benchmarks.timing import timed

CONSTRAINT = [
    {
        "priority": 1,
        "steps": [
            {"filter": "nodes_free > 0"},
            {"calc": "build_cost=(cost_per_node_hour * (memory_per_node * seconds_per_gb)/60/60)"},
            {"sort_descending": "build_cost"},
            {"select": "random"},
        ],
    }
]


def selecting() -> None:
    """Print how the founding text's selection grows with the candidates."""
    job = rainbow.parse_jobspec(
        {"resources": {"w": {"type": "node"}}, "attributes": {"parameter": {"seconds_per_gb": 2}}}
    )
    print(f"{'candidates':>10}{'select us':>14}{'us each':>14}")
    for count in (10, 100, 1_000, 10_000):
        verdicts = [rainbow.Verdict(f"c{k}", True, 1, totals={"nodes": 1}) for k in range(count)]
        states = {f"c{k}": {"cost_per_node_hour": k, "nodes_free": 3, "memory_per_node": 64} for k in range(count)}
        spent = timed(
            lambda v=verdicts, s=states: rainbow.select(  # type: ignore[misc]
                job, v, s, selector="constraint", options={"priorities": CONSTRAINT}, seed=1
            )
        )
        print(f"{count:>10}{spent:>14.0f}{spent / count:>14.2f}")


if __name__ == "__main__":
    matching.main()
    selecting()
    planning()
    sharing()
    hosting()
    running_tasks()
