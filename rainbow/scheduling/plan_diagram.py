"""A plan as a resource diagram and as a Gantt chart: running, starting and reserved, where times are known.

What an advance reservation keeps is drawn whole, and not a second time for the jobs that run in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from html import escape
from itertools import pairwise
from math import inf

from rainbow.scheduling.interface import Plan, Reserve, Start, View
from rainbow.scheduling.resource_timeline import Profile, Timeline


def diagram(view: View, plan: Plan) -> Timeline:
    """Enter everything a view's tasks hold and its plan would book; what has no known end continues forever."""
    capacity = {worker.id: dict(worker.capacity) for worker in view.workers}
    made = Timeline({**capacity, "": view.outside()})
    for reserved in view.reservations:
        made.add(reserved.placement, reserved.start, reserved.end)
    kept_for = {reserved.id for reserved in view.reservations}
    usual = view.settings.get("default_duration") or inf  # what a policy plans with, if it has the setting
    for run in view.runs:
        if run.attributes.get("reservation") not in kept_for:
            made.add(run.placement, run.started, max(run.until or run.started + usual, view.now))
    _enter(made, view, plan, {job.id for job in view.jobs if job.attributes.get("reservation") in kept_for}, usual)
    return made


def _enter(made: Timeline, view: View, plan: Plan, inside: Set[str], usual: float) -> None:
    """Enter what a plan would book, but for the jobs inside reservations."""
    gangs = {task: (job.id, gang.expected) for job in view.jobs for gang in job.gangs for task in gang.tasks}
    for order in plan.orders:
        if isinstance(order, Start):
            job, expected = gangs[order.task]
            if job not in inside:
                made.add(order.placement, view.now, view.now + (expected or usual))
        elif isinstance(order, Reserve) and order.job not in inside:
            made.add(order.placement, order.at, order.until)


LEFT, WIDTH, ROW, TOP = 160, 800, 18, 24


def draw(timeline: Timeline, now: float) -> str:
    """Return an SVG from now up to the last end."""
    entries = list(timeline.entries())
    last = max((t for _, line in entries for t, _ in line if t < inf), default=now)
    span = max(last - now, 1.0)
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
