"""Tasks to suspend and to resume: by calendars, subordination and suspend thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from rainbow.scheduling.interface import Order, Resume, Suspend
from rainbow.scheduling.priority.config.calendar import SUSPENDED
from rainbow.scheduling.priority.model import QueueInstance
from rainbow.scheduling.priority.placement.lines import ResourceLines, queue_line
from rainbow.scheduling.snapshot import RunView


def suspended_spots(lines: ResourceLines) -> set[QueueInstance]:
    """Return the queues on workers that are suspended now, by calendar or because a superior one is in use."""
    result = {spot for spot in _instances(lines) if _by_calendar(lines, spot.queue)}
    for spot in _instances(lines):
        for below, least in lines.queues[spot.queue].given["subordinates"].items():
            if in_use(lines, spot) >= least:
                result.add(QueueInstance(spot.worker, below))
    return result


def in_use(lines: ResourceLines, spot: QueueInstance) -> int:
    """How many slots of a queue on a worker are in use now, closed hours not counted."""
    if _closed(lines, spot.queue):
        return 0
    line = lines.timeline.lines.get(queue_line(spot), {}).get("slots")
    return line.level(lines.view.now) if line else 0


def suspensions(lines: ResourceLines, spots: set[QueueInstance]) -> Iterator[Suspend | Resume]:
    """Yield what is to be suspended, and what this policy suspended and may continue."""
    ours = set(lines.view.memory.get("suspended", []))
    hold = {run.task for run in lines.view.runs if spots & set(placed(lines, run))}
    hold |= {task for spot in _instances(lines) for task in _by_threshold(lines, spot, ours)}
    for run in lines.view.runs:
        if run.task in hold and not run.suspended and not run.stopping:
            yield Suspend(run.task)
        elif run.task in ours and run.suspended and run.task not in hold:
            yield Resume(run.task)


def paced(lines: ResourceLines, held: Iterable[Order]) -> dict[str, float]:
    """Return {queue on a worker: when tasks there were last held or let continue}, while that matters."""
    moved = {order.task for order in held if isinstance(order, (Suspend, Resume))}
    touched = {spot for run in lines.view.runs if run.task in moved for spot in placed(lines, run)}
    before = lines.view.memory.get("paced", {})
    result = {}
    for spot in _instances(lines):
        line, options = queue_line(spot), lines.queues[spot.queue].given
        last = lines.view.now if spot in touched else before.get(line, -inf)
        if options["suspend_thresholds"] and lines.view.now - last < options["suspend_interval"]:
            result[line] = last
    return result


def placed(lines: ResourceLines, run: RunView) -> list[QueueInstance]:
    """Return where a running task lies, as far as this policy started it."""
    known = lines.view.memory.get("running", {}).get(run.task, {})
    return [QueueInstance(worker, queue) for worker, queue, _ in known.get("spots", [])]


def _by_threshold(lines: ResourceLines, spot: QueueInstance, ours: set[str]) -> list[str]:
    """Return the tasks of a queue on a worker to hold: a few more while overloaded, a few less when not."""
    queue = lines.queues[spot.queue]
    if not queue.given["suspend_thresholds"]:
        return []
    here = sorted((r for r in lines.view.runs if spot in placed(lines, r)), key=lambda r: (-r.started, r.task))
    held = sum(1 for run in here if run.task in ours)
    last = lines.view.memory.get("paced", {}).get(queue_line(spot), -inf)
    step = queue.given["suspend_tasks"] if lines.view.now - last >= queue.given["suspend_interval"] else 0
    over = queue.alarmed(lines.load.values[spot.worker], "suspend_thresholds")
    return [run.task for run in here[: max(0, held + (step if over else -step))]]


def _by_calendar(lines: ResourceLines, name: str) -> bool:
    return lines.queues[name].calendar.state(lines.view.now, lines.zone) == SUSPENDED


def _closed(lines: ResourceLines, name: str) -> bool:
    return not lines.open_now(name)


def _instances(lines: ResourceLines) -> list[QueueInstance]:
    return [
        QueueInstance(worker, name)
        for worker in lines.workers
        for name, queue in lines.queues.items()
        if queue.given["enabled"] and queue.on(worker)
    ]
