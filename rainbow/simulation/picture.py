"""A picture of an outcome: queue length, waits and utilization over time, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rainbow.simulation.simulate import Outcome

WIDTH, HEIGHT, LEFT, TOP, GAP = 820, 120, 90, 34, 46
POINTS = 240
COLORS = ("#3b6ea5", "#a5563b", "#4f8a4f")

Line = Sequence[float]


def picture(outcome: Outcome, title: str = "") -> str:
    """Draw an outcome.

    >>> picture(Outcome((), 4, 0)).startswith("<svg")
    True
    """
    begin = min((one.submit for one in outcome.ran), default=0.0)
    end = max((one.end for one in outcome.ran), default=begin + 1.0)
    step = max(end - begin, 1e-9) / POINTS
    panels = (
        ("jobs waiting", _queue(outcome, begin, step)),
        ("mean wait of starts (h)", _waits(outcome, begin, step)),
        ("utilization (%)", _used(outcome, begin, step)),
    )
    height = TOP + len(panels) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 20}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="8" y="18">{escape(title)} ({len(outcome.ran):,} jobs, {outcome.cores:,} cores)</text>',
    ]
    for k, (name, line) in enumerate(panels):
        parts += _panel(TOP + k * (HEIGHT + GAP), name, line, COLORS[k], (end - begin) / 86_400)
    return "\n".join([*parts, "</svg>\n"])


def _panel(top: float, name: str, line: Line, color: str, days: float) -> Iterable[str]:
    most = max(line, default=0.0) or 1.0
    bottom = top + HEIGHT
    points = " ".join(
        f"{LEFT + WIDTH * k / (POINTS - 1):.1f},{bottom - (HEIGHT - 14) * value / most:.1f}"
        for k, value in enumerate(line)
    )
    yield f'<text x="{LEFT}" y="{top + 4}" fill="{color}">{escape(name)}</text>'
    yield f'<line x1="{LEFT}" y1="{bottom}" x2="{LEFT + WIDTH}" y2="{bottom}" stroke="#999"/>'
    yield f'<text x="{LEFT - 6}" y="{top + 18}" text-anchor="end">{most:,.6g}</text>'
    yield f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>'
    yield f'<text x="{LEFT + WIDTH}" y="{bottom + 16}" text-anchor="end">{days:,.3g} days</text>'
    yield f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{points}"/>'


def _level(changes: Iterable[tuple[float, float]], begin: float, step: float) -> list[float]:
    """Return the mean of a level over each part of the time, from its changes."""
    sums, level, at = [0.0] * POINTS, 0.0, begin
    for time, change in [*sorted(changes), (begin + POINTS * step, 0.0)]:
        _spread(sums, at, time, level, begin, step)
        level, at = level + change, max(at, time)
    return [one / step for one in sums]


def _spread(sums: list[float], start: float, end: float, level: float, begin: float, step: float) -> None:
    if not level:
        return
    first, last = int((start - begin) / step), int((end - begin) / step)
    for k in range(max(first, 0), min(last, POINTS - 1) + 1):
        sums[k] += level * max(0.0, min(end, begin + (k + 1) * step) - max(start, begin + k * step))


def _queue(outcome: Outcome, begin: float, step: float) -> Line:
    changes = [change for one in outcome.ran for change in ((one.submit, 1.0), (one.start, -1.0))]
    return _level(changes, begin, step)


def _used(outcome: Outcome, begin: float, step: float) -> Line:
    whole = 100.0 / (outcome.cores or 1)
    changes = [c for one in outcome.ran for c in ((one.start, one.cores * whole), (one.end, -one.cores * whole))]
    return _level(changes, begin, step)


def _waits(outcome: Outcome, begin: float, step: float) -> Line:
    sums, counts = [0.0] * POINTS, [0] * POINTS
    for one in outcome.ran:
        k = min(int((one.start - begin) / step), POINTS - 1)
        sums[k] += (one.start - one.submit) / 3_600
        counts[k] += 1
    return [total / count if count else 0.0 for total, count in zip(sums, counts, strict=True)]
