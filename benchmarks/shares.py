"""Three hundred rounds of fifty workers: what every class runs against its target, drawn as `docs/shares.svg`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random

from rainbow.scheduling.load_based.entitlements import ClassCount, credited, starts, targets, targets_now

WORKERS, ROUNDS = 50, 300
PERCENTS = {"land": 60, "diff": 39, "tryout": 1}
COLOURS = {"land": "#1f77b4", "diff": "#2ca02c", "tryout": "#d62728"}
PICTURE = Path(__file__).parents[1] / "docs" / "shares.svg"

Curve = Sequence[float]


def simulate(seed: int = 1) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Run all classes with endless queues of tasks of 5 to 9 rounds; return what ran and the targets, by round."""
    chance = Random(seed)
    ends: dict[str, list[int]] = {name: [] for name in PERCENTS}
    ran: dict[str, list[int]] = {name: [] for name in PERCENTS}
    requirements: dict[str, list[int]] = {name: [] for name in PERCENTS}
    credit: dict[str, float] = {}
    for now in range(ROUNDS):
        ends = {name: [end for end in result if end > now] for name, result in ends.items()}
        counts = [ClassCount(name, percent, len(ends[name]), 1_000) for name, percent in PERCENTS.items()]
        idle = WORKERS - sum(map(len, ends.values()))
        target = targets_now(WORKERS, counts, credit)
        granted = starts(idle, WORKERS, counts, credit)
        credit = credited(credit, counts, targets(WORKERS, PERCENTS), granted)
        for name, more in granted.items():
            ends[name] += [now + chance.randint(5, 9) for _ in range(more)]
            ran[name].append(len(ends[name]))
            requirements[name].append(target[name])
    return ran, requirements


def sharing() -> None:
    """Print each class's share over time, and draw it."""
    ran, requirement = simulate()
    print(f"{'class':>10}{'percent':>10}{'exact':>10}{'ran':>10}")
    for name, percent in PERCENTS.items():
        print(f"{name:>10}{percent:>10}{WORKERS * percent / 100:>10.2f}{sum(ran[name]) / ROUNDS:>10.2f}")
    PICTURE.write_text(drawn(ran, requirement))
    print(f"drawn in {PICTURE.name}")


def drawn(ran: Mapping[str, Sequence[int]], requirements: Mapping[str, Sequence[int]]) -> str:
    """Draw targets (thin), what ran (thick) and what ran on average so far (dotted)."""
    lines = []
    for name, colour in COLOURS.items():
        average = [total / (k + 1) for k, total in enumerate(accumulate(ran[name]))]
        for curve, style in ((requirements[name], 'stroke-width="0.5"'), (ran[name], 'stroke-width="1.5"')):
            lines.append(f'<polyline points="{_points(curve)}" fill="none" stroke="{colour}" {style}/>')
        dotted = 'stroke-width="1" stroke-dasharray="2 3"'
        lines.append(f'<polyline points="{_points(average)}" fill="none" stroke="{colour}" {dotted}/>')
        lines.append(f'<text x="610" y="{_height(average[-1]):.1f}" font-size="11" fill="{colour}">{name}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" width="660" height="420" font-family="sans-serif">'
    return "\n".join([head, '<rect width="660" height="420" fill="white"/>', *lines, "</svg>", ""])


def _points(curve: Curve) -> str:
    return " ".join(f"{2 * k:.0f},{_height(value):.1f}" for k, value in enumerate(curve))


def _height(value: float) -> float:
    return 410 - 400 * value / WORKERS


if __name__ == "__main__":
    sharing()
