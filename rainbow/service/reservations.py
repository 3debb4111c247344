"""Advance reservations and maintenance: made, listed, shown and ended, where the cluster's policy honors them.

The cluster's secret sees and ends all of them; a submit token those of the requestors it may act for, and it sees
those they may run in. A reservation is made in the cluster's turn, like a step: two never get the same space.
Maintenance is a reservation of whole workers for no job, by the cluster's secret alone. It is made whatever runs or
is reserved there: what has to end or to move before it begins is listed, and a preview lists it beforehand. What
still runs then runs on, unless `at_begin` says that the cluster's steps requeue or cancel it.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rainbow.errors import Conflict, Forbidden, NotFound, Refused, RequestError, TooMany, TryLater, ValueRefused
from rainbow.jobspec import parse_jobspec
from rainbow.jobspec.hostlist import expand_hosts
from rainbow.matching import stated_units
from rainbow.outcome import note_cluster, note_object
from rainbow.scheduling import Gang, GangTask, GangView, JobView, Keeps, LocalTime, ReservedSpace, policies
from rainbow.service.core.access import Caller, own_cluster, requestor_of, visible_cluster
from rainbow.service.core.keyed_call import KeyedCall
from rainbow.service.core.limits import limits_of
from rainbow.service.live_state.mirror import mirrored
from rainbow.service.scheduler.view import Frozen, take_snapshot
from rainbow.store import clusters, events, reservations
from rainbow.store.events import Change
from rainbow.store.reservations import ReservationRecord
from rainbow.text import seconds_of

if TYPE_CHECKING:
    import sqlalchemy as sa

    from rainbow.jobspec import Request
    from rainbow.scheduling.snapshot import Placement
    from rainbow.service.core.service import Service
    from rainbow.store.clusters import ClusterRecord
    from rainbow.store.step_lock import Turn


LATE = 60.0  # seconds that a start may lie in the past, and is taken for now
PATIENCE = 5.0  # seconds to wait for the cluster's turn
ANYBODY = "*"
MOST_WORKERS = 10_000  # of one maintenance


def create(
    service: Service,
    who: Caller,
    name: str,
    body: Mapping[str, Any],
    call: KeyedCall | None = None,
    *,
    preview: bool = False,
) -> dict[str, Any]:
    """Keep space for a jobspec's resources, or workers for maintenance; Refused says why there is none.

    `body` has the form `Reservation`. With `preview` nothing is made.
    """
    request = parse_jobspec(body["jobspec"]) if "jobspec" in body else None
    with service.store.read() as connection:
        record = (visible_cluster if request else own_cluster)(connection, who, name)
        note_cluster(name, record.id)
        limits = limits_of(clusters.limits(connection, record.id))
    if request is None:
        limits = {**limits, "reservation_days": 0}
    owner = _owner(who, record, body.get("requestor"), body.get("login"))
    start, seconds = _times(service, record, body, limits)
    call = call or KeyedCall(service)
    with _turn(service, record) as turn:
        if (earlier := call.look()) is not None:  # in the turn, which no other call of this key has meanwhile
            return earlier
        with mirrored(service, service.entry(record)) as mirror:
            frozen = take_snapshot(service, mirror)
            if frozen is None:
                stored = ReservedSpace(text="it has no workers")
            elif request is None:
                stored = _emptied(frozen, body["workers"], start, seconds)
            else:
                stored = _kept(frozen, request, owner, start, seconds)
        if stored.placement is None or frozen is None:
            raise Refused(f"no room for this reservation on cluster {name}: {stored.text}", cluster=name)
        made = _record(service, record, owner, body, stored)
        answer = _shown(service, record, made) | _in_the_way(frozen, made) | {"must_end": list(stored.ends)}
        if preview:
            return {**answer, "id": None}
        with turn.write() as connection:
            if request is not None:
                _admit(connection, record, owner, limits, service.clock())
            reservations.add(connection, made)
            _note(connection, service, who, record, made, None, "made")
            call.keep(connection, answer)
    service.tell(record.id)
    return answer


def listing(service: Service, who: Caller, name: str, *, every: bool = False) -> list[dict[str, Any]]:
    """List a cluster's reservations the caller may see, the first to start first; `every`: those over too."""
    now = service.clock()
    with service.store.read() as connection:
        record = visible_cluster(connection, who, name)
        result = reservations.of_cluster(connection, record.id, None if every else now)
    return [_shown(service, record, one) for one in result if _sees(who, one)]


def show(service: Service, who: Caller, name: str, reservation_id: str) -> dict[str, Any]:
    """Show one."""
    with service.store.read() as connection:
        record = visible_cluster(connection, who, name)
        result = _visible(connection, who, record, reservation_id)
    answer = _shown(service, record, result)
    may_end = who.owns(record.id) or (not result.maintenance and who.speaks_for(record.id, result.requestor))
    if result.end <= service.clock() or not may_end:
        return answer
    with mirrored(service, service.entry(record)) as mirror:
        frozen = take_snapshot(service, mirror)
    return answer | _in_the_way(frozen, result) if frozen else answer


def delete(service: Service, who: Caller, name: str, reservation_id: str) -> None:
    """End one now: its space is free, the jobs that name it end with it. Said twice it is the same."""
    now = service.clock()
    with service.store.write() as connection:
        record = visible_cluster(connection, who, name)
        note_object(f"reservation {reservation_id}", record.id)
        result = _visible(connection, who, record, reservation_id)
        if result.maintenance:
            own_cluster(connection, who, name)
        if not who.speaks_for(result.cluster_id, result.requestor):
            raise Forbidden(f"reservation {reservation_id} belongs to {result.requestor}")
        if result.end <= now:
            if any(one.after is None for one in events.list_changes(connection, record.id, 1, _called(result))):
                return
            raise Conflict(f"reservation {reservation_id} is over")
        reservations.end(connection, result.id, now)
        _note(connection, service, who, record, result, result, "deleted")
    service.tell(record.id)


# ── who ──


def _owner(who: Caller, record: ClusterRecord, query: str | None, login: str | None) -> str:
    if who.owns(record.id):
        return query or login or "operator"
    return requestor_of(query, who.submits[record.id], login)


def _sees(who: Caller, record: ReservationRecord) -> bool:
    if who.speaks_for(record.cluster_id, record.requestor) or record.requestors is None or record.maintenance:
        return True
    return bool(set(record.requestors) & set(who.submits.get(record.cluster_id) or ()))


def _visible(connection: sa.Connection, who: Caller, record: ClusterRecord, name: str) -> ReservationRecord:
    result = reservations.get(connection, record.id, name)
    if result is None or not _sees(who, result):
        raise NotFound(f"reservation {name[:100]} not found")
    return result


# ── when ──


def _times(
    service: Service, record: ClusterRecord, body: Mapping[str, Any], limits: Mapping[str, int]
) -> tuple[float | None, float]:
    """Read start (None: the earliest) and seconds."""
    now, start = service.clock(), _time(record, body, "start")
    if start is not None and start < now - LATE:
        raise ValueRefused("start is in the past", pointer="/start")
    start = None if start is None else max(start, now)
    end = _time(record, body, "end")
    if (end is None) == (body.get("duration") is None) or (end is not None and start is None):
        raise RequestError("give duration, or start and end", pointer="/duration")
    seconds = float(body["duration"]) if end is None else end - (start or 0.0)
    if not seconds > 0:
        raise ValueRefused("it ends before it starts", pointer="/end")
    days = limits["reservation_days"]
    if days and seconds > days * 86_400:
        raise TooMany(f"reservation is too long: the limit is {days} days", limit="reservation_days", most=days)
    return start, seconds


def _time(record: ClusterRecord, body: Mapping[str, Any], key: str) -> float | None:
    """Read a time; one without a zone is in the cluster's, if its policy knows that."""
    if body.get(key) is None:
        return None
    policy = policies.get(record.policy)

    def local(time: datetime) -> float:
        if not isinstance(policy, LocalTime):
            return time.replace(tzinfo=UTC).timestamp()
        try:
            return policy.moment(record.settings, time)
        except ValueError as fault:
            raise ValueRefused(f"{key}: {fault}", pointer=f"/{key}") from None

    try:
        return seconds_of(body[key], local)
    except (ValueError, OverflowError):
        raise RequestError(f"{key} is a time: 2030-01-31T12:00:00Z", pointer=f"/{key}") from None


@contextmanager
def _turn(service: Service, record: ClusterRecord) -> Iterator[Turn]:
    """Wait for the cluster's turn; TryLater while another process keeps it."""
    limit = time.monotonic() + PATIENCE
    while True:
        with service.turns.of(record.id) as turn:
            if turn is not None:
                yield turn
                return
        if time.monotonic() > limit:
            raise TryLater("a scheduling cycle is running; try again")
        time.sleep(0.02)


# ── what ──


def _kept(frozen: Frozen, request: Request, owner: str, start: float | None, seconds: float) -> ReservedSpace:
    """Ask the policy for the space of all a request's slots together."""
    policy = policies.get(frozen.record.policy)
    if not isinstance(policy, Keeps):
        raise Conflict(f"policy {frozen.record.policy} keeps no reservations; priority does")
    tasks = tuple(GangTask(k, spec.name, spec, spec.slots) for k, spec in enumerate(request.tasks))
    gang, ids = Gang(0, tasks, request), [f"reservation-{k}" for k in range(len(tasks))]
    placing = frozen.placing
    demand = placing.demand("reservation", gang, ids)
    view = GangView("reservation", 0, tuple(ids), demand, seconds, placing.slots(request))
    return policy.keep(frozen.view, JobView("reservation", owner, frozen.view.now, (view,)), start, seconds)


def _emptied(frozen: Frozen, requirements: Sequence[str] | str, start: float | None, seconds: float) -> ReservedSpace:
    """Return all of some workers over a time, and the tasks there that may still run when it begins."""
    policy = policies.get(frozen.record.policy)
    if not isinstance(policy, Keeps):
        drain = "drain the workers instead (rainbow worker drain)"
        raise Conflict(f"policy {frozen.record.policy} keeps no maintenance, priority does; {drain}")
    names = expand_hosts(requirements, MOST_WORKERS) if isinstance(requirements, str) else list(requirements)
    capacity = frozen.placing.capacity
    unknown = [name for name in names or () if name not in capacity]
    if not names or unknown:
        text = f"workers must be 1 to {MOST_WORKERS:,} names or a hostlist such as n[01-04], got {requirements!s:.80}"
        raise ValueRefused(f"worker {unknown[0][:100]} not found" if unknown else text, pointer="/workers")
    begin = frozen.view.now if start is None else start
    held = {name: {kind: n for kind, n in capacity[name].items() if n} for name in dict.fromkeys(names)}
    return ReservedSpace(held, begin, begin + seconds, ends=tuple(_must_end(frozen, held, begin)))


def _must_end(frozen: Frozen, held: Placement, begin: float) -> Iterator[str]:
    """Yield the tasks that may still run when space is to be free, on workers that have too little beside them."""
    still = [run for run in frozen.view.runs if not run.until or run.until > begin]
    remaining = {worker: Counter(frozen.placing.capacity.get(worker, {})) for worker in held}
    remaining[""] = Counter(frozen.view.outside())
    for run in still:
        for worker in run.placement.keys() & remaining.keys():
            remaining[worker].subtract(run.placement[worker])
    lacking = {
        worker for worker, amounts in held.items() if any(remaining[worker][k] < n for k, n in amounts.items())
    }
    yield from (run.task for run in still if lacking & run.placement.keys())


def _in_the_way(frozen: Frozen, made: ReservationRecord) -> dict[str, Any]:
    """Say which tasks must end before; of maintenance also which promised starts and reservations lose space."""
    ends = {"must_end": list(_must_end(frozen, made.placement, made.start))}
    if not made.maintenance:
        return ends
    space = made.placement.keys()
    promised = {
        one.job
        for one in frozen.view.promises
        if one.at < made.end and one.until > made.start and space & one.booking.keys()
    }
    others = [
        one.id
        for one in frozen.view.reservations
        if one.id != made.id and one.start < made.end and one.end > made.start and space & one.placement.keys()
    ]
    return {**ends, "promised": sorted(promised), "reservations": others}


def _admit(
    connection: sa.Connection, record: ClusterRecord, owner: str, limits: Mapping[str, int], now: float
) -> None:
    most = limits["max_reservations_per_requestor"]
    has = sum(one.requestor == owner for one in reservations.of_cluster(connection, record.id, now))
    if 0 <= most <= has:
        text = f"{owner} already has {has} reservations on cluster {record.name}; the limit is {most}"
        raise TooMany(text, limit="max_reservations_per_requestor", most=most, present=has)


def _record(
    service: Service, record: ClusterRecord, owner: str, body: Mapping[str, Any], stored: ReservedSpace
) -> ReservationRecord:
    others, maintenance = body.get("requestors"), "workers" in body
    allowed = None if others and ANYBODY in others else list(dict.fromkeys([owner, *(others or ())]))
    placement = {worker: dict(amounts) for worker, amounts in (stored.placement or {}).items()}
    return ReservationRecord(
        id=secrets.token_hex(6),
        cluster_id=record.id,
        requestor=owner,
        requestors=[] if maintenance else allowed,
        start=stored.start,
        end=stored.end,
        placement=placement,
        created_at=service.clock(),
        name=body.get("name") or "",
        maintenance=maintenance,
        at_begin=(body.get("at_begin") or "") if maintenance else "",
    )


def _called(one: ReservationRecord) -> str:
    """Name a reservation in the list of changes."""
    return f"reservation {one.id}"


def _note(
    connection: sa.Connection,
    service: Service,
    who: Caller,
    record: ClusterRecord,
    one: ReservationRecord,
    before: ReservationRecord | None,
    state: str,
) -> None:
    """Keep who did it, and tell it as an event."""
    now, facts = service.clock(), {"requestor": one.requestor, "start": one.start, "end": one.end}
    was, becomes = (facts, None) if before else (None, facts)
    caller = who.called(record.id) if who.owns(record.id) else f"requestor {one.requestor}"
    events.add_change(connection, record.id, Change(now, caller, _called(one), was, becomes))
    events.add(connection, now, record.id, "reservation", cluster=record.name, id=one.id, state=state)


def _shown(service: Service, record: ClusterRecord, one: ReservationRecord) -> dict[str, Any]:
    now, entry = service.clock(), service.catalogue.get(record.name)
    units = stated_units(entry.cluster) if entry else {}
    state = "over" if one.end <= now else "active" if one.start <= now else "coming"
    return {
        "id": one.id,
        "name": one.name,
        "state": state,
        "requestor": one.requestor,
        "requestors": one.requestors,
        "start": _written(one.start),
        "end": _written(one.end),
        "placement": one.placement,
        **({"units": units} if units else {}),
        "maintenance": one.maintenance,
        **({"at_begin": one.at_begin} if one.at_begin else {}),
        "created_at": _written(one.created_at),
    }


def _written(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
