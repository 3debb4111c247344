"""Advance reservations: space for a time to come, found by the dispatcher's own search.

At a time that is given, the question is whether the job could start then, were it alone: what will have ended is left
out of the view, and `now` is that time. Without one, it is the job's earliest start. All of it is found, or nothing.
What runs without a known end is no obstacle at a given time, if there is no room around it: it is named, for somebody
must end it, or drain its worker, before the reservation begins; nothing starts there that would still run then.
Load, queues, environments and quotas are matters of the jobs that will run there, not of the space; space promised to
waiting jobs is no obstacle, for promises are made again in every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from rainbow.scheduling.interface import ReservedSpace, View
from rainbow.scheduling.priority.config.settings import check_settings
from rainbow.scheduling.priority.items import items
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.priority.placement.lines import ResourceLines, end_of
from rainbow.scheduling.priority.reasons import Explainer
from rainbow.scheduling.snapshot import JobView, Placement, RunView, amounts_by_worker

COUNTED = ("slot_type", "schedule_interval", "consumables", "default_duration", "time_zone", "utc_offset")


def keep(view: View, job: JobView, start: float | None, seconds: float) -> ReservedSpace:
    """Find space for a job's gang over `seconds`, from `start` on or as early as it fits."""
    settings = check_settings({key: value for key, value in view.settings.items() if key in COUNTED})
    gang = replace(job.gangs[0], expected=seconds)
    alone = replace(job, gangs=(gang,), attributes={})
    result = _found(view, alone, start, seconds, settings)
    if result.placement is not None or start is None:
        return result
    endless = [run for run in view.runs if end_of(run, view.now, settings) == inf]
    held = {worker for run in endless for worker in run.placement}
    spared = replace(view, workers=sorted(view.workers, key=lambda worker: worker.id in held))
    over = _found(_without(spared, endless), alone, start, seconds, settings)
    if over.placement is None:
        return result
    lacking = _lacking(view, over.placement, start, settings)
    return replace(over, ends=tuple(run.task for run in endless if lacking & run.placement.keys()))


def _lacking(view: View, placement: Placement, start: float, settings: Mapping[str, Any]) -> set[str]:
    """Return the workers on which less of a placement will be free than it takes."""
    then = _at(view, start, settings)
    free = {worker.id: worker.free for worker in then.workers} | {"": then.consumables}
    return {
        worker
        for worker, amounts in placement.items()
        if any(free[worker].get(kind, 0) < amount for kind, amount in amounts.items())
    }


def _found(view: View, job: JobView, start: float | None, seconds: float, settings: dict[str, Any]) -> ReservedSpace:
    """Find space around everything that is there."""
    then = replace(_at(view, view.now if start is None else start, settings), jobs=[job])
    (item,) = items(then, settings)
    lines = ResourceLines(then, settings)
    assigner = Assigner(lines, settings, {})
    grant = assigner.now_for(item)
    if grant is None and start is None:
        grant = assigner.later_for(item)
    if grant is None:
        return ReservedSpace(text=Explainer(lines).explain(item).text(then.now, lines.zone))
    held = {line: dict(amounts) for line, amounts in grant.booking.items() if any(amounts.values())}
    if not item.groups:  # what only the matcher can place takes workers whole
        held.update({spot.worker: dict(lines.workers[spot.worker].capacity) for spot, _ in grant.spots})
    return ReservedSpace(held, grant.start, grant.start + seconds)


def _at(view: View, time: float, settings: Mapping[str, Any]) -> View:
    """Return a view as it will be at a time, as far as what runs has a known end."""
    remaining = _without(view, [run for run in view.runs if end_of(run, view.now, settings) <= time])
    return replace(
        remaining,
        now=time,
        workers=[replace(worker, load={}) for worker in remaining.workers],
        reservations=[reserved for reserved in view.reservations if reserved.end > time],
        memory={},
        settings=settings,
        census=None,
    )


def _without(view: View, gone: Sequence[RunView]) -> View:
    """Return a view in which some tasks have given back what they hold."""
    freed = amounts_by_worker(run.placement for run in gone)
    over = {run.task for run in gone}
    return replace(
        view,
        workers=[replace(w, free=_more(w.free, freed.get(w.id, {}))) for w in view.workers],
        consumables=_more(view.consumables, freed.get("", {})),
        runs=[run for run in view.runs if run.task not in over],
        census=None,
    )


def _more(free: Mapping[str, int], freed: Mapping[str, int]) -> dict[str, int]:
    return {**free, **{kind: free.get(kind, 0) + amount for kind, amount in freed.items()}}
