"""The resource diagram drawn as a Gantt chart: one row for every worker and type, use shaded by how full it is."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise
from math import inf

from rainbow.scheduling.profile import Profile
from rainbow.scheduling.timeline import Timeline

LEFT, WIDTH, ROW, TOP = 160, 800, 18, 24


def draw(timeline: Timeline, now: float, until: float | None = None) -> str:
    """Return an SVG of [now, until); without `until`, up to the last end."""
    entries = list(timeline.entries())
    last = max((t for _, line in entries for t, _ in line if t < inf), default=now)
    end = until if until is not None else max(last, now)
    span = max(end - now, 1.0)
    height = TOP + ROW * len(entries) + 4
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<text x="{LEFT}" y="14">now</text>',
        f'<text x="{LEFT + WIDTH}" y="14" text-anchor="end">{span:.10g} s</text>',
    ]
    for k, ((worker, kind), line) in enumerate(entries):
        capacity = timeline.capacity.get(worker, {}).get(kind, 0)
        top = TOP + ROW * k
        parts.append(f'<text x="4" y="{top + 12}">{escape(worker or "(cluster)")} {escape(kind)}</text>')
        parts.extend(_bars(line, now, now + span, top, capacity))
    return "\n".join([*parts, "</svg>\n"])


def _bars(line: Profile, now: float, end: float, top: int, capacity: int) -> Iterator[str]:
    for start, stop, level in _pieces(line, now, end):
        x = LEFT + WIDTH * (start - now) / (end - now)
        width = WIDTH * (stop - start) / (end - now)
        shade = min(1.0, level / capacity) if capacity else 1.0
        span = f"{start - now:.10g} to {stop - now:.10g} s"
        yield (
            f'<rect x="{x:.1f}" y="{top}" width="{width:.1f}" height="{ROW - 2}" fill="#3b6ea5" '
            f'fill-opacity="{shade:.2f}"><title>{level} of {capacity}, {span}</title></rect>'
        )


def _pieces(line: Profile, now: float, end: float) -> Iterator[tuple[float, float, int]]:
    """Yield (start, stop, level) of every stretch in use inside [now, end)."""
    steps = [*line, (inf, 0)]
    for (time, level), (following, _) in pairwise(steps):
        start, stop = max(time, now), min(following, end)
        if level > 0 and start < stop:
            yield start, stop, level
