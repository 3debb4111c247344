"""What choosing by learned lines is worth on held-out jobs: run time by the model, by the user's number, at random.

Three recorded traces give how long jobs took and how much that varies. What a cluster's memory does to a run no
trace says, so each group of jobs has a rule of its own: for half of the groups a line that falls or rises with
memory, for a quarter none, for a quarter a bowl. The first half of each trace is run at random on three clusters and
taught to `linear_model.fit`; the second half is held out. The user's number is the true slope, off by a factor of up
to 3. `python -m benchmarks.run_models TRACE ...`
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rainbow.forecast.linear_model import LinearModel, fit
from rainbow.simulation.arrival import read_trace

MEMORY = np.array([64.0, 128.0, 256.0])
FEWEST = 40  # jobs of a group, half of which teach
ROUNDS = 2_000  # of the bootstrap


def factors(rule: int, tilt: float) -> np.ndarray:
    """Return how many times as long a run takes at each memory."""
    if rule < 2:
        return 1 + tilt * (MEMORY - 128) / 256
    return np.ones(3) if rule == 2 else 0.8 + ((MEMORY - 128) / 128) ** 2 * 0.4


def groups_of(path: Path) -> list[np.ndarray]:
    """Return the run times of each user's jobs of one size, in order of submission."""
    results: dict[tuple[str, int], list[float]] = {}
    for job in read_trace(path):
        if job.run > 0:
            results.setdefault((job.requestor, job.slots), []).append(float(job.run))
    return [np.array(times) for times in results.values() if len(times) >= FEWEST]


def compare(groups: Sequence[np.ndarray], seed: int = 0) -> dict[str, tuple[float, float, float]]:
    """Return the ratio of total run times on held-out jobs to those at random, with a 95 % interval over groups."""
    rng = np.random.default_rng(seed)
    totals: dict[str, list[float]] = {"random": [], "model": [], "user": []}
    used = 0
    for k, times in enumerate(groups):
        tilt = rng.uniform(0.3, 1.2) * rng.choice([-1, 1])
        scale, half = factors(k % 4, tilt), len(times) // 2
        there = rng.integers(0, 3, half)
        model = fit(MEMORY[there], times[:half] * scale[there])
        held_out = times[half:].sum()
        totals["random"].append(held_out * scale.mean())
        if isinstance(model, LinearModel):
            used += 1
            totals["model"].append(held_out * scale[np.argmin([model.seconds(memory) for memory in MEMORY])])
        else:
            totals["model"].append(held_out * scale.mean())
        slope = (scale[2] - scale[0]) * rng.uniform(1 / 3, 3)
        totals["user"].append(held_out * (scale[np.argmin(slope * MEMORY)] if slope else scale.mean()))
    drawn = rng.integers(0, len(groups), (ROUNDS, len(groups)))
    sums = {how: np.array(one)[drawn].sum(axis=1) for how, one in totals.items()}
    results = {}
    for how in ("model", "user"):
        ratios = sums[how] / sums["random"]
        results[how] = (sum(totals[how]) / sum(totals["random"]), *np.quantile(ratios, (0.025, 0.975)))
    return {**results, "used": (used / len(groups), 0.0, 0.0)}


def main(paths: Sequence[str]) -> None:
    """Print a row for each trace."""
    print(
        "| held-out history | groups | with a model | by the model / at random | by the user's number / at random |"
    )
    print("|---|---|---|---|---|")
    for path in map(Path, paths):
        groups = groups_of(path)
        results = compare(groups)
        cells = [f"{ratio:.2f} [{low:.2f}, {high:.2f}]" for ratio, low, high in (results["model"], results["user"])]
        print(f"| {path.name.partition('.')[0]} | {len(groups)} | {results['used'][0]:.0%} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
