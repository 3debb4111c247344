"""The published LAMMPS experiment: how often a job is sent to a cluster that suits it, by what is known of it.

`python -m benchmarks.lammps FOLDER [--repetitions 10] [--seed 1] [--plot OUT.svg]` prints the tables of the page
docs/lammps.md. FOLDER has upstream's files as they lie in converged-computing/rainbow-experiments,
experiments/simulation-lammps.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import mean, stdev
from typing import Any

import yaml

import rainbow
from rainbow.cli.input.files import clusters_of

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
PLACES = (".", "clusters", "results", "collected/lammps-published", "inputs/lammps", "../../inputs/lammps")
ORDER = ("io.archspec", "os", "mpi", "hardware")  # upstream adds them in this order
SETTINGS = ((), *((one,) for one in ORDER), *(ORDER[:k] for k in (2, 3, 4)))
ITERATIONS = 20  # upstream's: each of 18 jobs is submitted so often
DRAWS = 10  # of prices and memory for every repetition
CORES = 2  # upstream asked for 4, which no node has
SELECTORS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "random": ("random", {}),
    "cheapest node hour": (
        "constraint",
        {"priorities": [{"priority": 1, "steps": [{"sort_ascending": "cost_per_node_hour"}, {"select": "first"}]}]},
    ),
    "linear model, as written": (
        "constraint",
        yaml.safe_load((ROOT / "policies" / "founding.yaml").read_text())["scheduler"]["algorithms"]["selection"][
            "options"
        ],
    ),
    "linear model, cheapest first": (
        "constraint",
        {
            "priorities": [
                {
                    "priority": 1,
                    "steps": [
                        {"calc": "build_cost = cost_per_node_hour * memory_per_node * seconds_per_gb / 3600"},
                        {"sort_ascending": "build_cost"},
                        {"select": "first"},
                    ],
                }
            ]
        },
    ),
}
Setting = tuple[str, ...]


@dataclass(frozen=True)
class Experiment:
    """Upstream's jobs ({name: {subsystem: {key: value}}}), clusters, points ({cluster: {job: points}}) and scores."""

    jobs: Mapping[str, Mapping[str, Mapping[str, str]]]
    clusters: Sequence[rainbow.Cluster]
    points: Mapping[str, Mapping[str, float]]
    published: Mapping[str, float]

    def candidates(self, setting: Setting) -> dict[str, list[rainbow.Verdict]]:
        """Return the clusters that match each job when these subsystems are known."""
        results = {}
        for name, needs in self.jobs.items():
            request = rainbow.parse_jobspec(jobspec(name, {one: needs[one] for one in setting}))
            results[name] = [verdict for verdict in rainbow.match(request, self.clusters) if verdict.matched]
        return results


def read_experiment(folder: Path) -> Experiment:
    """Read upstream's files; FileNotFoundError names what is missing."""
    listed = yaml.safe_load(_find(folder, "jobspecs.yaml").read_text())["jobspecs"]
    with _find(folder, "jobspec-to-cluster-matches.csv").open() as file:
        rows = list(csv.DictReader(file))
    points = {f"cluster-{row.pop('')}": {job: float(one) for job, one in row.items()} for row in rows}
    scores = json.loads(_find(folder, "scores.json").read_text())
    clusters = clusters_of([_find(folder, "clusters")])
    published = {name: score["accuracy"] for name, score in scores.items()}
    return Experiment({one["name"]: one["resources"] for one in listed}, clusters, points, published)


def _find(folder: Path, name: str) -> Path:
    result = next((folder / place / name for place in PLACES if (folder / place / name).exists()), None)
    if result is None:
        raise FileNotFoundError(f"{folder} has no {name}")
    return result


def jobspec(name: str, needs: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Write the jobspec that upstream's script writes, with 2 cores for its 4."""
    resources = {
        subsystem: {"match": [{"type": f"{key}={value}"} for key, value in requirement.items()]}
        for subsystem, requirement in needs.items()
    }
    return {
        "version": 1,
        "resources": [{"type": "node", "count": 2, "with": [{"type": "core", "count": CORES}]}],
        "task": {"command": ["lmp", name], "count": {"per_slot": 1}, "resources": resources},
    }


def expected(experiment: Experiment, candidates: Mapping[str, list[rainbow.Verdict]]) -> float:
    """Return the mean points of a draw among all candidates of each job."""
    return mean(mean(experiment.points[one.cluster][job] for one in them) for job, them in candidates.items())


def drawn(
    experiment: Experiment, candidates: Mapping[str, list[rainbow.Verdict]], repetitions: int, seed: int
) -> list[float]:
    """Return the points a job of each repetition: every job is submitted 20 times, as upstream did."""
    results = []
    for repetition in range(repetitions):
        points = 0.0
        for job, them in candidates.items():
            request = rainbow.parse_jobspec(jobspec(job, {}))
            for k in range(ITERATIONS):
                choice = rainbow.select(request, them, {}, seed=f"{seed}/{repetition}/{job}/{k}")
                points += experiment.points[str(choice.cluster)][job]
        results.append(points / (ITERATIONS * len(candidates)))
    return results


@dataclass(frozen=True)
class Row:
    """One setting: how many clusters are left, and the accuracies in percent."""

    setting: str
    clusters: float
    expected: float
    measured: float
    spread: float  # the standard deviation of one repetition
    published: float


def reproduce(experiment: Experiment, repetitions: int, seed: int) -> Iterator[Row]:
    """Yield a row for each setting."""
    for setting in SETTINGS:
        name, candidates = "+".join(setting) or "none", experiment.candidates(setting)
        results = drawn(experiment, candidates, repetitions, seed)
        remaining = mean(map(len, candidates.values()))
        percents = (
            100 * expected(experiment, candidates),
            100 * mean(results),
            100 * stdev(results) if repetitions > 1 else 0.0,
        )
        yield Row(name, remaining, *percents, 100 * experiment.published[name])


@dataclass(frozen=True)
class Cost:
    """What one selector comes to at one setting: accuracy in percent, and dollars."""

    setting: str
    selector: str
    accuracy: float
    node_hour: float
    build: float
    suitable: float  # dollars spent for every build on a cluster that suits it


def costs(experiment: Experiment, repetitions: int, seed: int) -> Iterator[Cost]:
    """Yield what each selector chooses where prices and memory are drawn again and again."""
    for setting in (SETTINGS[0], *SETTINGS[-3:]):
        candidates = experiment.candidates(setting)
        for selector in SELECTORS:
            results = [
                one
                for repetition in range(DRAWS * repetitions)
                for one in _priced(experiment, candidates, selector, Random(f"{seed}/{repetition}"))
            ]
            points, price, build = (mean(column) for column in zip(*results, strict=True))
            yield Cost("+".join(setting) or "none", selector, 100 * points, price, build, build / points)


def _priced(
    experiment: Experiment, candidates: Mapping[str, list[rainbow.Verdict]], selector: str, chance: Random
) -> Iterator[tuple[float, float, float]]:
    """Yield points, price of a node hour and cost of the build of every job."""
    states = {
        cluster.name: {
            "cost_per_node_hour": round(chance.uniform(0.5, 8), 2),
            "memory_per_node": chance.choice((64, 128, 256, 512)),
            "nodes_free": 4,
        }
        for cluster in experiment.clusters
    }
    name, options = SELECTORS[selector]
    for job, them in candidates.items():
        slope = round(chance.uniform(1, 30), 1)
        request = rainbow.parse_jobspec({**jobspec(job, {}), "attributes": {"parameter": {"seconds_per_gb": slope}}})
        choice = rainbow.select(request, them, states, selector=name, options=options, seed=chance.getrandbits(64))
        chosen = states[str(choice.cluster)]
        hours = chosen["memory_per_node"] * slope / 3600
        price = chosen["cost_per_node_hour"]
        yield experiment.points[str(choice.cluster)][job], price, price * hours


def plot(rows: Sequence[Row]) -> str:
    """Draw the accuracy of each setting: a bar for the expected one, a line for ours, a circle for the published."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="760" height="{50 + 26 * len(rows)}" '
        'font-family="sans-serif" font-size="12" fill="#1f2933">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="8" y="20">accuracy in percent by subsystems known: bar expected, line ours (± 2 standard '
        "deviations), circle published</text>",
    ]
    for k, row in enumerate(rows):
        y, scale = 36 + 26 * k, 4.4
        low, high = (230 + scale * min(max(row.measured + side * row.spread, 0), 100) for side in (-2, 2))
        parts += [
            f'<text x="8" y="{y + 13}">{row.setting}</text>',
            f'<rect x="230" y="{y}" width="{scale * row.expected:.1f}" height="18" fill="#9fc1e0"/>',
            f'<path d="M{low:.1f} {y + 9}H{high:.1f}M{230 + scale * row.measured:.1f} {y + 3}v12" stroke="#1f2933"/>',
            f'<circle cx="{230 + scale * row.published:.1f}" cy="{y + 9}" r="4" fill="none" stroke="#c53030" '
            'stroke-width="2"/>',
            f'<text x="690" y="{y + 13}">{row.measured:.1f}</text>',
        ]
    return "\n".join([*parts, "</svg>\n"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both tables, and write the plot if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lammps", description=main.__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SHARED, help="folder with upstream's files")
    parser.add_argument("--repetitions", type=int, default=10, help="of upstream's 360 submissions a setting")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, metavar="OUT.svg")
    requests = parser.parse_args(arguments)
    try:
        experiment = read_experiment(requests.folder)
    except FileNotFoundError as error:
        parser.error(str(error))
    rows = list(reproduce(experiment, requests.repetitions, requests.seed))
    print("| known | clusters left | expected % | ours % | published % |\n|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row.setting} | {row.clusters:g} | {row.expected:.1f} | {row.measured:.1f} ± {row.spread:.1f} "
            f"| {row.published:.1f} |"
        )
    print(
        "\n| known | selector | accuracy % | $ a node hour | $ a build | $ a suitable build |\n"
        "|---|---|---|---|---|---|"
    )
    for cost in costs(experiment, requests.repetitions, requests.seed):
        print(
            f"| {cost.setting} | {cost.selector} | {cost.accuracy:.1f} | {cost.node_hour:.2f} | {cost.build:.2f} "
            f"| {cost.suitable:.2f} |"
        )
    if requests.plot:
        requests.plot.write_text(plot(rows))


if __name__ == "__main__":
    main()
