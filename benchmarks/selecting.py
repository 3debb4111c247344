"""Selection: how it grows with the candidates, and its expressions beside simpleeval and HTCondor's ClassAds.

All in one run, so that ratios mean something on a busy machine. What is counted for each, per cluster:

    columns      rainbow, many clusters at once: from the states as mappings to a value for every cluster
    alone        rainbow, cluster by cluster: the same from a mapping
    simpleeval   SimpleEval.eval of the parsed expression, the names exchanged before each
    classad2     symmetricMatch of a job's ClassAd with a cluster's, both made beforehand
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import rainbow
from benchmarks.timing import once, timed
from rainbow.selection.expression.compiler import compile_expression
from rainbow.selection.variables import Variables
from tests.unit.selection.expressions import evaluate

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
PROMISED = 1_000.0  # microseconds for the founding text's selection over 1,000 candidates
FILTER = "nodes_free > 0 and cost_per_node_hour * memory_per_node * 2 / 60 / 60 < 100"
CLASSAD = "TARGET.nodes_free > 0 && TARGET.cost_per_node_hour * TARGET.memory_per_node * 2 / 60 / 60 < 100"

States = Mapping[str, Mapping[str, Any]]


def _states(count: int) -> dict[str, dict[str, Any]]:
    return {f"c{k}": {"cost_per_node_hour": k, "nodes_free": k % 5, "memory_per_node": 64} for k in range(count)}


def _verdicts(count: int) -> list[rainbow.Verdict]:
    return [rainbow.Verdict(f"c{k}", True, 1, totals={"nodes": 1}) for k in range(count)]


def growing() -> None:
    """Print how the founding text's selection grows with the candidates."""
    job = rainbow.parse_jobspec(
        {"resources": {"w": {"type": "node"}}, "attributes": {"parameter": {"seconds_per_gb": 2}}}
    )
    print(f"{'candidates':>10}{'select us':>14}{'best us':>14}{'us each':>14}")
    for count in (10, 100, 1_000, 10_000):
        verdicts, states = _verdicts(count), _states(count)
        for values in states.values():
            values["nodes_free"] = 3

        def choose(verdicts: Any = verdicts, states: Any = states) -> object:
            options = {"priorities": CONSTRAINT}
            return rainbow.select(job, verdicts, states, selector="constraint", options=options, seed=1)

        spent, best = timed(choose, 50), min(once(choose) for _ in range(50))
        text = f"   {'within' if best <= PROMISED else 'over'} the promised 1 ms" if count == 1_000 else ""
        print(f"{count:>10}{spent:>14.0f}{best:>14.0f}{best / count:>14.2f}{text}")


# ── rivals: each a function that evaluates FILTER for every cluster and returns how many pass ───────────────


def _columns(states: States) -> Callable[[], int]:
    expression, verdicts = compile_expression(FILTER), _verdicts(len(states))

    def run() -> int:
        values, _ = Variables(verdicts, states, {}).evaluate(expression, range(len(verdicts)))
        return sum(value is True for value in values.values())

    return run


def _alone(states: States) -> Callable[[], int]:
    expression = compile_expression(FILTER)
    return lambda: sum(evaluate(expression, state) is True for state in states.values())


def _simpleeval(states: States) -> Callable[[], int]:
    from simpleeval import SimpleEval

    evaluator = SimpleEval()
    parsed = evaluator.parse(FILTER)

    def passes(state: Mapping[str, Any]) -> bool:
        evaluator.names = state
        return evaluator.eval(FILTER, previously_parsed=parsed) is True

    return lambda: sum(map(passes, states.values()))


def _classad(states: States) -> Callable[[], int]:
    from classad2 import ClassAd

    job = ClassAd(f"[Requirements = {CLASSAD}]")
    clusters = [ClassAd({**state, "Requirements": True}) for state in states.values()]
    return lambda: sum(job.symmetricMatch(cluster) for cluster in clusters)


RIVALS: Mapping[str, Callable[[States], Callable[[], int]]] = {
    "columns": _columns,
    "alone": _alone,
    "simpleeval": _simpleeval,
    "classad2": _classad,
}


def rivals() -> None:
    """Print evaluations per second of one filter, ours and those of others; all must let the same clusters pass."""
    print(f"{'clusters':>10}{'by':>14}{'per second':>14}{'columns are':>14}")
    for count in (1_000, 10_000):
        states, ours, passed = _states(count), 0.0, set()
        for name, prepare in RIVALS.items():
            try:
                run = prepare(states)
            except ImportError:
                print(f"{count:>10}{name:>14}   not installed: pip install 'rainbow-hpc[bench]'")
                continue
            passed.add(run())
            rate = count / min(once(run) for _ in range(7)) * 1e6
            ours = ours or rate
            print(f"{count:>10}{name:>14}{rate:>14,.0f}{ours / rate:>13.1f}×")
        assert len(passed) == 1, f"they disagree: {passed}"


def selecting() -> None:
    """Print both."""
    growing()
    rivals()
