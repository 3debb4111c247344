"""The policy `priority`: one scheduling run of Grid Engine's dispatcher over one resource diagram.

1 items     what waits, in order of submission
2 lines     what is booked: running tasks, advance reservations, closed hours
3 order     priority of every item, best first
4 dispatch  start, reserve or refuse each
5 report    orders, reasons, figures
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from math import inf, isinf
from typing import Any

from rainbow.scheduling.interface import (
    Order,
    Plan,
    Reserve,
    ReservedBlock,
    ReservedSpace,
    Resume,
    Start,
    Suspend,
    Traits,
    View,
    Wait,
)
from rainbow.scheduling.patience import for_ever
from rainbow.scheduling.priority.advance_reservations import keep
from rainbow.scheduling.priority.config.calendar import clock
from rainbow.scheduling.priority.config.settings import GRID_ENGINE, check_settings, in_base_units
from rainbow.scheduling.priority.config.time_zones import moment_of, zone_of
from rainbow.scheduling.priority.dispatch import BEHIND, FAULTY, LIMITED, STARTED, Dispatch, Outcome
from rainbow.scheduling.priority.items import environments, items
from rainbow.scheduling.priority.job_order import first_for_age, late_first, ordered, prioritise, rank, tickets
from rainbow.scheduling.priority.model import Item, SlotAssignment, owners, read_asks
from rainbow.scheduling.priority.placement.assign import Assigner
from rainbow.scheduling.priority.placement.lines import CLUSTER, ResourceLines
from rainbow.scheduling.priority.promises import Entered, are_made, in_danger, key_of, renewed
from rainbow.scheduling.priority.queue import Row, keep_queue, kept_queue
from rainbow.scheduling.priority.reasons import FITS, SMALL, UNFIT
from rainbow.scheduling.priority.share_tree import counted, expected, lengths
from rainbow.scheduling.priority.suspension import paced, suspended_spots, suspensions
from rainbow.scheduling.settings_schema import at, no_worker
from rainbow.scheduling.snapshot import JobView, Promise
from rainbow.text import rfc3339, some


def orders(view: View, outcomes: Iterable[Outcome]) -> list[Order]:
    """Return the starts and reservations of a run."""
    made: list[Order] = []
    for outcome in outcomes:
        grant, gang = outcome.grant, outcome.item.gang
        if grant is None:
            continue
        if outcome.verdict == STARTED:
            placed = view.divide(gang.demand, grant.take())
            located = grant.located or (None,) * len(placed)
            made.extend(map(Start, gang.tasks, placed, located))
        else:
            workers = {CLUSTER, *(spot.worker for spot, _ in grant.spots)}
            held = {line: amounts for line, amounts in grant.booking.items() if line in workers}
            start, end = (inf, inf) if grant.after else (grant.start, grant.end)
            made.append(Reserve(outcome.item.job.id, held, start, end))
    return made


def remembered(
    view: View, settings: Mapping[str, Any], outcomes: Iterable[Outcome], held: Sequence[Order]
) -> dict[str, Any]:
    """Return the memory of where tasks lie, as far as queues, environments or quotas count it, and who is held."""
    memory: dict[str, Any] = {}
    if settings["queues"] or settings["quotas"] or settings["parallel_environments"]:
        known = view.memory.get("running", {})
        reserved = {run.task: known[run.task] for run in view.runs if run.task in known}
        for outcome in outcomes:
            if outcome.verdict == STARTED and outcome.grant is not None:
                reserved[outcome.item.gang.tasks[0]] = _where(outcome.grant)
        memory["running"] = reserved
    before = view.memory.get("suspended")
    suspended = {run.task for run in view.runs}.intersection(before) if before else set()
    suspended |= {order.task for order in held if isinstance(order, Suspend)}
    suspended -= {order.task for order in held if isinstance(order, Resume)}
    return {**memory, "suspended": sorted(suspended)} if suspended else memory


def _where(grant: SlotAssignment) -> dict[str, Any]:
    spots = [[spot.worker, spot.queue, count] for spot, count in grant.spots]
    return {"pe": grant.environment.name, "spots": spots}


def kept(run: Run) -> Iterator[ReservedBlock]:
    """Yield what is free and kept for the items that are promised a time, or space."""
    now, timeline = run.lines.view.now, run.lines.timeline
    for outcome in run.outcomes:
        grant = outcome.grant
        if grant is None or outcome.verdict == STARTED:
            continue
        until, result, on = (inf if grant.after else grant.start), Counter[str](), set[str]()
        for spot, _ in grant.spots:
            if spot.worker not in on:
                for kind, amount in grant.booking.get(spot.worker, {}).items():
                    free = timeline.free_at(spot.worker, kind, now) + (amount if grant.after else 0)
                    if (idle := min(amount, free)) > 0:
                        result[kind] += idle
                        on.add(spot.worker)
        if result:
            yield ReservedBlock(outcome.item.job.id, dict(result), len(on), until)


NAME = "priority"  # what this policy remembers stands under its name, beside what others left


@dataclass(frozen=True, slots=True)
class Run:
    """One scheduling run, done: what was decided, and the diagram with everything booked."""

    settings: Mapping[str, Any]
    lines: ResourceLines
    assigner: Assigner
    outcomes: list[Outcome]
    memory: dict[str, Any]


def dispatch(view: View) -> Run:
    """Decide about everything that waits; again, with promised space entered first, if a promise is in danger."""
    settings = in_base_units(check_settings(view.settings), view.units)
    row, memory, since = _in_order(view, settings)
    run = _dispatched(view, settings, row, (), memory)
    if view.promises and are_made(settings) and (danger := _in_danger(run, row)):
        run = _dispatched(view, settings, row, danger, memory)
        if not {one.key for one in _in_danger(run, row)} <= {one.key for one in danger}:
            run = _dispatched(view, settings, row, view.promises, memory)
    if sum(outcome.verdict == STARTED for outcome in run.outcomes) < len(row):  # else the queue is empty now
        memory |= since
    return run


def _dispatched(
    view: View, settings: Mapping[str, Any], row: Row, entered: Sequence[Promise], memory: dict[str, Any]
) -> Run:
    """Try what waits, in order, with some promised space entered first."""
    if entered and view.free is not None:
        view.free.begin()  # what the run before has taken is free again
    lines = ResourceLines(view, settings, environments(settings).values())
    assigner = Assigner(lines, settings, view.memory.get("slot_search", {}))
    reserved = Entered.of(lines, settings, row.items, entered) if entered else None
    first = memory.get("first", {})
    since = first["at"] if row.items and row.items[0].job.id == first.get("job") else None
    return Run(settings, lines, assigner, Dispatch(view, settings, lines, assigner, reserved, since).run(row), memory)


def _in_danger(run: Run, row: Row) -> list[Promise]:
    """Return the promises that a run does not keep."""
    starts = {
        key_of(one.item): one.grant.start for one in run.outcomes if one.grant is not None and not one.grant.after
    }
    promises = run.lines.view.promises
    waiting = {key_of(item) for item in row.of({one.job for one in promises})}
    return list(in_danger(starts, waiting, promises))


def _in_order(view: View, settings: Mapping[str, Any]) -> tuple[Row, dict[str, Any], dict[str, Any]]:
    """Return what waits as it is tried, what is to be remembered, and what more if some of it still waits then."""
    before = view.memory.get("first", {})
    if (queue := kept_queue(view, settings)) is not None:
        job, first = first_for_age(view, settings, queue.of_job, before)
        return queue.led_by(job), {"first": first} if first else {}, {}
    waiting = items(view, settings)
    memory = _prioritise(view, waiting, settings)
    since, results = rank(view, waiting, settings), ordered(waiting)
    keep_queue(view, settings, results)
    job, first = first_for_age(view, settings, {item.job.id: [item] for item in results}, before)
    results = sorted(results, key=lambda item: item.job.id != job) if job else results
    row = Row(late_first(results, view.now, settings["starve"]))
    return row, memory | ({"first": first} if first else {}), since


def _prioritise(view: View, waiting: list[Item], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Set the priority of every item; return the memory with usage brought up to now."""
    options = settings["tickets"]
    memory: dict[str, Any] = {}
    if not any((options["share"], options["functional"], *options["override"].values())):
        prioritise(waiting, view.now, settings, [0.0] * len(waiting), view.factor)
        return memory
    held = {run.task: owners(run.job, run.requestor, read_asks(run)) for run in view.runs}
    used: Mapping[str, float] = {}
    length: float | None = None
    if options["share"] and options["share_tree"]:
        memory["usage"] = counted(view, settings)
        used = memory["usage"]["used"]
        if settings["compat"] != GRID_ENGINE:
            memory["lengths"] = lengths(view)
            length = memory["lengths"]["mean"]
            used = expected(view, used, length, settings)
    active = list({own["job"]: own for own in held.values()}.values())
    prioritise(waiting, view.now, settings, tickets(waiting, active, used, options, length), view.factor)
    return memory


def _for_ever(settings: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Say that jobs may wait indefinitely where they may: an order has `starve` in place of the patience."""
    if settings["compat"] == GRID_ENGINE:
        return ()
    if settings["order"]:
        return for_ever(settings["starve"].get("after"), "starve")
    return for_ever(settings["patience"])


class Priority:
    """Plans by priority, with reservations and backfilling."""

    traits = Traits(needs_workers=True)

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings with every default filled in; PolicyError names the first fault."""
        return check_settings(settings)

    def names(self, settings: Mapping[str, Any]) -> Mapping[str, Collection[str]]:
        """Return the queues and parallel environments there are."""
        queues, environments_ = settings.get("queues", {}), settings.get("parallel_environments", {})
        return {"queue": queues, "master_queue": queues, "pe": environments_}

    def plan(self, view: View) -> Plan:
        """Start what fits in order of priority, and promise times to those that do not."""
        run = dispatch(own_view(view))
        held: list[Order] = []
        if run.lines.queues:
            held.extend(suspensions(run.lines, suspended_spots(run.lines)))
        times = paced(run.lines, held)
        own = run.memory | ({"paced": times} if times else {})
        own |= remembered(run.lines.view, run.settings, run.outcomes, held)
        if run.assigner.experience:
            own["slot_search"] = run.assigner.experience
        memory = {key: value for key, value in view.memory.items() if key != NAME}
        made = (*orders(view, run.outcomes), *held)
        memory |= {NAME: own} if own else {}
        promises, broken = renewed(
            run.lines.view, run.settings, ((one.item, one.grant, one.verdict == STARTED) for one in run.outcomes)
        )
        if view.quiet:
            return Plan(made, memory=memory, promises=promises, broken=broken)
        answers = tuple(waits(run.lines, run.outcomes, promises))
        known = figures(run.outcomes)
        return Plan(made, answers, known, memory, promises=promises, broken=broken, kept=tuple(kept(run)))

    def ranked(self, view: View) -> list[tuple[str, int]]:
        """Return (job, number of its gang) of what waits and can start at all, in the order in which it is tried."""
        own = own_view(view)
        settings = in_base_units(check_settings(own.settings), own.units)
        row = _in_order(own, settings)[0]
        return [(item.job.id, item.gang.number) for item in row.items if not item.asks.fault]

    def promising(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return settings under which every job may be promised a time."""
        options = {key: value for key, value in settings.items() if key != "max_reservation"}
        return {
            **options,
            "discipline": "conservative",
            "plan_depth": 0,
            "max_jobs_per_user": 0,
            "compat": "",
            "search": "gaps",
        }

    def counted_until(self, memory: Mapping[str, Any]) -> float | None:
        """Return from when on it needs the record of what has ended: since it counted usage last; None: never."""
        at = memory.get(NAME, {}).get("usage", {}).get("at")
        return None if at is None else float(at)

    def warnings(
        self, settings: Mapping[str, Any], requestors: Collection[str], workers: Collection[str]
    ) -> Sequence[Mapping[str, Any]]:
        """Name the patterns of queues that no worker of the cluster matches; say if jobs may wait indefinitely."""
        return [*_for_ever(check_settings(settings))] + [
            no_worker(f"queue {name}", pattern, at(at(at("/queues", name), "workers"), k), workers)
            for name, queue in check_settings(settings)["queues"].items()
            for k, pattern in enumerate(queue["workers"])
            if workers and not any(fnmatchcase(worker, pattern) for worker in workers)
        ]

    def moment(self, settings: Mapping[str, Any], local: datetime) -> float:
        """Return when the cluster's wall clock shows a time; NoSuchTime if that is never, or twice."""
        return moment_of(local, zone_of(check_settings(settings)))

    def keep(self, view: View, job: JobView, start: float | None, seconds: float) -> ReservedSpace:
        """Find space for an advance reservation: amounts, of no vertices yet."""
        view = replace(view, free=None)
        return keep(view, job, start, seconds)


def own_view(view: View) -> View:
    """Return a view with the memory that is this policy's own."""
    if not view.memory:
        return view
    own = view.memory.get(NAME)
    return replace(view, memory=own if isinstance(own, Mapping) else {})


FOR_GOOD = {UNFIT, SMALL}  # what no end of a task and no other state of a worker changes


def waits(lines: ResourceLines, outcomes: Iterable[Outcome], promises: Iterable[Promise] = ()) -> list[Wait]:
    """Return one reason for every job of which something waits: that of its first waiting gang."""
    answer: dict[str, Wait] = {}
    promised = {one.key: one for one in promises}
    for ahead, outcome in enumerate(outcome for outcome in outcomes if outcome.verdict != STARTED):
        job = outcome.item.job.id
        if job not in answer:
            answer[job] = _wait(lines, outcome, ahead, promised.get(key_of(outcome.item)))
    return list(answer.values())


def _wait(lines: ResourceLines, outcome: Outcome, ahead: int, promise: Promise | None) -> Wait:
    """Say why an item waits, and if it is last because its order has no value."""
    wait, fault = _why(lines, outcome, ahead, promise), outcome.item.unordered
    if not fault:
        return wait
    text = f"{wait.text}; last in order, because {fault}"
    return replace(wait, text=text, facts={**wait.facts, "order": fault})


def _why(lines: ResourceLines, outcome: Outcome, ahead: int, promise: Promise | None) -> Wait:
    item, reasons = outcome.item, outcome.reasons
    facts: dict[str, Any] = {"ahead": ahead}
    if outcome.verdict == FAULTY:
        return Wait(item.job.id, "attributes", item.asks.fault, facts)
    if outcome.verdict == LIMITED:
        return Wait(item.job.id, "running-limit", _limit(item, lines.settings["max_jobs_per_user"]), facts)
    if reasons is None:
        return Wait(
            item.job.id, "behind", f"{some(ahead, 'gang')} ahead {'is' if ahead == 1 else 'are'} also waiting", facts
        )
    now, zone = lines.view.now, lines.zone
    text, facts = reasons.text(now, zone), {**facts, **reasons.facts()}
    if outcome.why is not None:
        text, facts = f"{outcome.why.text}; {text}", {**facts, **outcome.why.facts}
    if outcome.ahead is not None:
        endless = isinf(item.duration)
        text, facts = outcome.ahead.with_times(text, now, zone, endless=endless), {**facts, **outcome.ahead.facts()}
    if outcome.grant is not None:
        return _reserved(lines, item, outcome.grant, promise, text, facts)
    if outcome.never or (outcome.verdict == BEHIND and facts["reasons"].keys() <= FOR_GOOD):
        return _unpromised(lines, item, text, facts)
    if outcome.verdict == BEHIND:
        depth = lines.settings["plan_depth"]
        behind = f"{text}; {some(depth, 'job')} ahead have planned starts, the most with plan_depth {depth}"
        return Wait(item.job.id, "behind", behind, facts | {"plan_depth": depth})
    if reasons.counts.get(FITS):
        return Wait(item.job.id, "too-few", f"{text}; not enough for all of its slots", facts)
    return Wait(item.job.id, "busy", text, facts)


def _limit(item: Item, most: int) -> str:
    """Name the limits of running jobs and tasks that an item is under."""
    together = item.asks.tasks_at_once
    jobs = f"{some(most, 'running job')} of {item.user} (max_jobs_per_user)" if most else ""
    tasks = f"{some(together, 'running task')} of the job (tasks_at_once)" if together else ""
    return f"at the limit of {' or '.join(filter(None, [jobs, tasks]))}"


KEPT_UNLESS = "kept unless a worker fails or a higher priority comes"
PLANNED = "may move, as it is planned by time limits and nothing is promised"


def _reserved(
    lines: ResourceLines, item: Item, grant: SlotAssignment, promise: Promise | None, text: str, facts: dict[str, Any]
) -> Wait:
    """Say which start an item is promised, when it is planned to start, or after what."""
    if grant.after:
        return _after(lines, item, grant, text, facts)
    now, zone = lines.view.now, lines.zone
    start, basis = (promise.start, KEPT_UNLESS) if promise else (grant.start, PLANNED)
    soon = f"; {'promised' if promise else 'planned'} start {clock(start, now, zone)} ({basis})"
    workers = sorted({spot.worker for spot, _ in grant.spots})
    known: dict[str, Any] = {"start": rfc3339(grant.start), "kept": workers[:100]}
    if promise:
        known["promised"] = rfc3339(start)
    if promise and (before := promise.broken):
        times = {"old": rfc3339(before.old), "at": rfc3339(before.at)}
        known["broken"] = {**times, "why": before.why, "text": before.text}
    return Wait(item.job.id, "reserved", text + soon, facts | known)


def _after(lines: ResourceLines, item: Item, grant: SlotAssignment, text: str, facts: dict[str, Any]) -> Wait:
    """Say that space is kept until tasks without a known end have ended."""
    endless = sum(map(isinf, lines.ends))
    workers = sorted({spot.worker for spot, _ in grant.spots})
    one = len(grant.after) == 1
    why = f"; space is kept until {some(len(grant.after), 'task')} without a time limit end{'s' if one else ''}"
    known = {"start": None, "after": list(grant.after[:100]), "endless": endless, "kept": workers[:100]}
    return Wait(item.job.id, "reserved", text + why, facts | known)


def _unpromised(lines: ResourceLines, item: Item, text: str, facts: dict[str, Any]) -> Wait:
    """Say that no time was found: for good, or for as long as nobody knows when what runs will end."""
    if facts["reasons"].keys() <= FOR_GOOD or _outlasts(lines, item):
        return Wait(item.job.id, "never", f"{text}; will never fit", facts)
    endless = sum(map(isinf, lines.ends))
    why = f": {endless} running tasks have no time limit" if endless else ""
    return Wait(item.job.id, "no-time", f"{text}; no start time can be estimated{why}", facts | {"endless": endless})


def _outlasts(lines: ResourceLines, item: Item) -> bool:
    """Return whether an item runs longer than there is left of the advance reservation it is for."""
    reserved = lines.reservations.get(item.asks.reservation)
    return reserved is not None and max(lines.view.now, reserved.start) + item.duration > reserved.end


def figures(outcomes: Sequence[Outcome], most: int = 1_000) -> dict[str, Any]:
    """Return how many gangs met which verdict, and the first ones with every term of their priority."""
    shown = [
        {"job": o.item.job.id, "verdict": o.verdict, "priority": round(o.item.priority, 6), **o.item.terms}
        for o in outcomes[:most]
    ]
    return {"verdicts": dict(sorted(Counter(o.verdict for o in outcomes).items())), "priorities": shown}
