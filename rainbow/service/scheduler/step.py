"""One scheduling step of one cluster, in numbered phases.

1 follow     take over what has changed in the store
2 change     what is lost goes back to the queue, jobs leave a lost cluster, what runs too long is stopped
3 freeze     the view: what the policy may know
4 plan       the policy decides, held to limits and preemption
5 check      no invariant is broken
6 carry out  one transaction writes starts, stops and why jobs wait
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from math import inf
from pathlib import Path
from time import thread_time
from typing import TYPE_CHECKING, Any

import structlog

from rainbow.errors import PolicyError, ValueRefused
from rainbow.scheduling import (
    Keeps,
    Plan,
    Reserve,
    Resume,
    Start,
    Stop,
    Suspend,
    View,
    check_plan,
    diagram,
    planner,
    policies,
    slots_of,
    traits_of,
)
from rainbow.scheduling.invariants import every_wait, left, started
from rainbow.scheduling.rules.running_limits import within
from rainbow.service.accounts.account_cache import with_elsewhere
from rainbow.service.agents.liveness import LostClusters, is_awaited, lose_the_silent, may_return
from rainbow.service.core.limits import limits_of
from rainbow.service.jobs.expectation import tell_broken
from rainbow.service.jobs.lifecycle import end, end_more, is_overdue
from rainbow.service.live_state.mirror import follow, mirrored
from rainbow.service.placement.failover import Looks, is_away, is_leaving, leave
from rainbow.service.placement.recall import recall
from rainbow.service.placement.replacement import Reviews, is_unfinished, move_to_sooner
from rainbow.service.scheduler.plan_in_force import PlansInForce
from rainbow.service.scheduler.view import Frozen, frozen, supposed, take_snapshot
from rainbow.state_machine import BOOKED, Hold, Task, TaskState, job_of
from rainbow.store import clusters, jobs, reservations, tasks, workers
from rainbow.store.jobs import code_of
from rainbow.transitions import Assigned, StopOrdered, transition

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.service.core.service import Service
    from rainbow.service.live_state.mirror import Mirror
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.reservations import ReservationRecord
    from rainbow.store.step_lock import Turn


PAUSE = 1.0  # seconds before a task that was to be stopped is looked at again
SLICE = 0.1  # seconds that a step goes on ending the tasks of one canceled job
WHY = "exceeded its time limit"


def stop_the_overdue(service: Service, mirror: Mirror) -> bool:
    """Tell agents to stop what runs too long; return whether there was any."""
    now, deadlines = service.clock(), mirror.deadlines
    results = set()
    while deadlines and deadlines[0][0] < now:
        results.add(heappop(deadlines)[1])
    running = [name for name in results if name in mirror.booked and mirror.booked[name].state is TaskState.RUNNING]
    if running:
        _stop(service, mirror, running, now)
        for name in running:
            heappush(deadlines, (now + PAUSE, name))
    return bool(running)


def _stop(service: Service, mirror: Mirror, names: list[str], now: float) -> None:
    with service.store.write() as connection:
        limits = limits_of(clusters.limits(connection, mirror.entry.id))
        result = tasks.get(connection, mirror.entry.id, names).values()
        late = [t for t in result if t.state is TaskState.RUNNING and is_overdue(connection, t, limits, now)]
        tasks.save_all(connection, [transition(task, StopOrdered(WHY), now) for task in late], now)
    service.tell(mirror.entry.id)


def empty_for_maintenance(service: Service, mirror: Mirror, record: ClusterRecord) -> bool:
    """End what still runs on workers whose maintenance has begun and asks for that; return whether anything did."""
    now, entry = service.clock(), mirror.entry
    if not (mirror.booked and isinstance(policies.get(record.policy), Keeps)):
        return False
    with service.store.read() as connection:
        begun = [
            one for one in reservations.of_cluster(connection, entry.id, now) if one.at_begin and one.start <= now
        ]
    results = dict(_in_maintenance(begun, mirror.booked.values())) if begun else {}
    if not results:
        return False
    with service.store.write() as connection:
        there = [task for task in tasks.get(connection, entry.id, results).values() if task.state in BOOKED]
        stopped = [task for task in there if results[task.id].at_begin == "requeue"]
        orders = [transition(task, StopOrdered(_text(results[task.id])), now) for task in stopped]
        tasks.save_all(connection, orders, now)
        for job, why in {task.job: _text(results[task.id]) for task in there if task not in stopped}.items():
            end(connection, job, now, why)
    service.tell(entry.id)
    return True


def _in_maintenance(
    begun: Iterable[ReservationRecord], booked: Collection[Task]
) -> Iterator[tuple[str, ReservationRecord]]:
    """Yield the tasks of gangs that hold a worker in maintenance, those that stop already left out."""
    gangs = {(t.job, t.gang): one for one in begun for t in booked if one.placement.keys() & t.placement.keys()}
    for task in booked:
        if task.state is not TaskState.STOPPING and (one := gangs.get((task.job, task.gang))):
            yield task.id, one


def _text(maintenance: ReservationRecord) -> str:
    return f"maintenance {maintenance.name or maintenance.id} has begun"


T = TaskState
MANY_ROWS = 200  # changed rows that are not read again
MOST_CODES = 20  # waiting jobs whose stored codes a step compares although nothing of them has changed
log = structlog.get_logger("rainbow")


def step(service: Service, name: str) -> bool:
    """Take one step for a cluster; return whether any order was carried out.

    False also while another process has the cluster's turn.
    """
    entry = service.catalogue.get(name)
    if entry is None:
        return False
    with service.turns.of(entry.id) as turn, mirrored(service, entry) as mirror:
        if turn is None:
            return False
        ordered = _take(service, mirror, turn)
    if ordered:
        service.tell(entry.id)
    return ordered


def _take(service: Service, mirror: Mirror, turn: Turn) -> bool:
    entry, version = mirror.entry, service.news.version(mirror.entry.id)
    record = follow(service, mirror)  # 1
    if record is not None and record.revision > entry.revision:  # another process has given it other graphs
        service.entry(record)
        service.tell(entry.id)
        return False
    if record is not None and prepare_step(service, mirror, record):  # 2
        record = follow(service, mirror)
    seen = frozen(service, mirror, record) if record else None  # 3
    service.poll_every_tick.discard(entry.id)
    more = mirror.ending or any(is_so(service, entry.id) for is_so in (is_leaving, is_unfinished, is_awaited))
    (service.has_backlog.add if more else service.has_backlog.discard)(entry.id)
    if seen is None:
        if record is not None and mirror.read > MANY_ROWS:
            with turn.write(beside=True) as connection:
                clusters.new_epoch(connection, entry.id)
        return False
    began = thread_time()
    plan = planner.plan(policies.get(seen.record.policy), seen.view, seen.rules)  # 4
    cost = thread_time() - began
    if os.environ.get("RAINBOW_PRINT_TIMELINE") == "1":
        log.info("timeline", cluster=seen.record.name, text=diagram(seen.view, plan).text(seen.view.now))
    for job, report in mirror.placing.refused.items():
        _write_refusal(service.folder, job, {"cluster": seen.record.name, **report})
    ordered = _carry_out(service, seen, plan, turn)  # 5, 6
    service.state(PlansInForce).put(service, seen, plan, version, cost)
    mirror.ended = {}
    reserved = {order.job for order in plan.orders if isinstance(order, Reserve) and order.at == inf}
    mirror.promised = reserved | {one.job for one in plan.promises}
    if mirror.resting or mirror.dependents.needs_polling(mirror.jobs) or _awaits_time(seen, plan):
        service.poll_every_tick.add(entry.id)
    return ordered


def _awaits_time(seen: Frozen, plan: Plan) -> bool:
    """Return whether time alone may change what is planned next."""
    traits = traits_of(seen.record.policy)
    if traits.rests:
        return bool(plan.orders) or dict(plan.memory) != dict(seen.record.memory)
    return bool(plan.memory) or not traits.by_events


def prepare_step(service: Service, mirror: Mirror, record: ClusterRecord) -> bool:
    """Take back what is lost or overdue, move jobs that should go elsewhere; return whether anything was written."""
    wrote = lose_the_silent(service, mirror)
    if mirror.ending:
        end_more(service, min(mirror.ending), SLICE)
        service.tell(mirror.entry.id)
    away = is_away(state for state, count in mirror.states.items() if count)
    if not away:
        service.state(LostClusters).pop(mirror.entry.id, None)
    if mirror.entry.drained or (away and not may_return(service, mirror)):
        wrote = leave(service, mirror) or wrote
        service.state(Reviews).pop(mirror.entry.id, None)  # nothing of the look that was cut short is left to do
    else:
        service.state(Looks).pop(mirror.entry.id, None)
        wrote = (not away and move_to_sooner(service, mirror)) or wrote
    if traits_of(record.policy).hands_over:
        wrote = recall(service, mirror, record) or wrote
    wrote = empty_for_maintenance(service, mirror, record) or wrote
    return stop_the_overdue(service, mirror) or wrote


def plan_only(
    service: Service, record: ClusterRecord, options: Mapping[str, Any] | None = None
) -> tuple[View, Plan] | None:
    """Say what the next step would do, without doing it, and of what; figures even if nothing waits.

    `options`: what is supposed to be different, of the form `Supposition`.
    """
    with mirrored(service, service.entry(record)) as mirror:
        version = service.news.version(mirror.entry.id)
        seen = take_snapshot(service, mirror)
        if seen is None:
            return None
        try:
            with supposed(seen, options or {}) as view:
                began = thread_time()
                plan = planner.plan(policies.get(seen.record.policy), view, seen.rules)
                if not options:
                    service.state(PlansInForce).put(service, seen, plan, version, thread_time() - began)
                return view, replace(plan, waits=tuple(every_wait(view, plan)), rest=None)
        except (PolicyError, ValueRefused) as fault:
            refusal = fault  # raised where the mirror is let go, which is not in doubt because of it
    raise refusal


# ── starts that were not made because their certificate was refused, as files for an operator ──

MOST_FILES = 100


def _write_refusal(folder: Path | None, job: str, report: Mapping[str, Any]) -> None:
    """Write what was refused of a job, readable by the server's user alone; of very many nothing more is written."""
    if folder is None:
        return
    path = folder / f"unverified-{job}.json"
    try:
        if not path.exists() and len(refusal_reports(folder)) >= MOST_FILES:
            return
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump({"job": job, **report}, file)
    except OSError as fault:  # the start is refused all the same
        log.error("unverified-not-written", file=str(path), reason=str(fault))


def refusal_reports(folder: Path) -> list[Path]:
    """Return the files there are."""
    return sorted(folder.glob("unverified-*.json"))


# ── 5 check and write, 6 store the codes of waits that have changed ──


def _carry_out(service: Service, seen: Frozen, plan: Plan, turn: Turn) -> bool:
    check_plan(seen.view, plan)
    mirror, now = seen.mirror, service.clock()
    waits = _changed_codes(seen, plan)
    remembers = dict(plan.memory) != dict(seen.record.memory)
    promises = plan.promises != tuple(seen.view.promises)
    if not (plan.orders or waits or remembers or promises or mirror.doomed or mirror.read > MANY_ROWS):
        return False
    with turn.write(beside=not (plan.orders or promises or mirror.doomed)) as connection:
        plan = _within(connection, seen, plan)
        changed = list(_ordered(connection, seen, plan, now))
        tasks.save_all(connection, changed, now)
        workers.keep_certificates(connection, mirror.placing.proved, changed)
        for job, why in _canceled(plan).items():
            end(connection, job, now, why)
        if remembers:
            clusters.set_memory(connection, seen.record.id, plan.memory)
        if waits:
            jobs.set_waits(connection, waits)
        if promises:
            reservations.keep_promises(connection, seen.record.id, seen.view.promises, plan.promises)
            tell_broken(connection, seen.record.id, seen.record.name, plan.broken)
        for job, why in mirror.doomed.items():
            end(connection, job, now, why)
        clusters.new_epoch(connection, seen.record.id)
    return bool(changed or mirror.doomed)


def _within(connection: sa.Connection, seen: Frozen, plan: Plan) -> Plan:
    """Return a plan without what passes a limit over all clusters by what has started elsewhere since the view."""
    rules = seen.rules
    if rules is None or not rules.has_shared_limits or not any(isinstance(order, Start) for order in plan.orders):
        return plan
    return within(seen.view, plan, with_elsewhere(connection, seen.mirror.entry, rules))


def _canceled(plan: Plan) -> dict[str, str]:
    """Return the jobs that end where their tasks are preempted, and why."""
    stops = (order for order in plan.orders if isinstance(order, Stop) and order.cancels)
    return {job_of(stop.task): stop.why for stop in stops}


def _ordered(connection: sa.Connection, seen: Frozen, plan: Plan, now: float) -> Iterator[Task]:
    """Yield the tasks as the orders make them; those that have moved since the view was frozen are left alone."""
    orders = {order.task: order for order in plan.orders if not isinstance(order, Reserve)}
    result = tasks.get(connection, seen.record.id, orders)
    for name, order in orders.items():
        task = result.get(name)
        if task is None:
            continue
        if isinstance(order, Stop) and task.state in BOOKED and task.state is not T.STOPPING:
            how = {"by": order.by, "signal": order.signal, "grace": order.grace} if order.by else None
            yield transition(task, StopOrdered(order.why, preempted=how), now)
        if isinstance(order, Start) and task.state is T.WAITING:
            options = Assigned(order.placement, order.held, _slots(seen.mirror, task))
            yield transition(task, options, now)
        if isinstance(order, Suspend) and task.state is T.RUNNING and task.hold == Hold.NONE:
            yield replace(task, hold=Hold.POLICY)
        if isinstance(order, Resume) and task.hold == Hold.POLICY:
            yield replace(task, hold=Hold.NONE)


def _slots(mirror: Mirror, task: Task) -> int:
    """Return how many slots the place of a task has."""
    take = mirror.placing.by_task.get(task.id)
    return slots_of(mirror.jobs[task.job].read.tasks[task.index].labels, take) if take else 1


def _changed_codes(seen: Frozen, plan: Plan) -> dict[str, dict[str, Any] | None]:
    """Return {job: what is to be stored of its wait} where its code is another one than the stored; None: it starts.

    Of the jobs that the plan does not name those are compared of which something has changed, and some others by
    turns: a code that follows from what others do is stored a few steps later; readers ask the plan in force.
    """
    mirror, census, begun = seen.mirror, seen.mirror.census, started(seen.mirror.census, plan)
    codes = {wait.job: wait.reason for wait in reversed(plan.waits)}
    codes |= {job: "" for job in begun.keys() - codes.keys() if left(census, job, begun) <= 0}
    codes |= mirror.blocked
    if plan.rest is not None:
        usual = plan.rest.reason
        compared = [job for job in mirror.to_compare(plan, MOST_CODES) if job in census.jobs and job not in codes]
        code = getattr(plan.rest, "code", lambda _: usual)  # a third party's may know no other than the usual one
        codes |= {job: code(job) for job in compared}
    return {
        job: {"reason": code, "since": seen.view.now} if code else None
        for job, code in sorted(codes.items())
        if code_of(mirror.jobs[job].record) != code
    }
