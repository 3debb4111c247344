"""The order in which items are tried: priority from urgency, tickets and POSIX priority.

npprio  POSIX priority, normalised over its fixed range
rrc     urgency of the resources asked for: Σ urgency of a type × amount × slots assumed
wtc     urgency of waiting: weight × seconds since submission
dlc     urgency of a deadline: weight / seconds left, all of the weight once it has passed
nurg    rrc + wtc + dlc, normalised over the items of this run
ntix    tickets (job_order.py), normalised from 0 to the most of this run

nfair   factor of the job's account and user in the fair tree of accounts, 0 without one

priority = weight.priority · npprio + weight.urgency · nurg + weight.ticket · ntix + weight.fair_share · nfair

Tickets come from the share tree, from functional shares and from an operator's override. These policies are applied
in the order of `hierarchy` (O override, F functional, S share tree); each looks at a project's or user's items in the
order of the tickets they have so far, so an earlier policy decides who is first. The k-th waiting item of an owner
with a active ones has a part of 1 / (a + k) of its functional tickets: owners take turns. The share tickets of the
item whose turn is the r-th by the share tree are in proportion to 1 / r.

With the setting `order` an expression ranks items within their POSIX priority: smaller is first, ties go by priority,
submission and place. An item whose order has no value (a limit is missing, something is divided by zero) goes behind
those that have one. The setting `starve` puts the oldest jobs that are late before all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf, isfinite
from typing import Any

from rainbow.jobspec.request import HIGHEST, LOWEST
from rainbow.scheduling.interface import View, cluster_index_of
from rainbow.scheduling.patience import overdue, waits_since
from rainbow.scheduling.priority.config.orders import read_order
from rainbow.scheduling.priority.config.settings import GRID_ENGINE
from rainbow.scheduling.priority.model import Item
from rainbow.scheduling.priority.share_tree import charge, entitlements, leaf_of, turns
from rainbow.scheduling.snapshot import BEHIND_ALL, JobView
from rainbow.selection.choice import is_number
from rainbow.selection.expression.compiler import Fault, evaluate_with
from rainbow.selection.expression.scalar import Unknown, admit


def normalised(value: float, low: float, high: float) -> float:
    """Return where a value lies between two bounds, from 0 to 1; 0.5 if they are the same."""
    if high - low < 2.2e-16:
        return 0.5
    return min(1.0, max(0.0, (value - low) / (high - low)))


class Normalised(dict[float, float]):
    """Values normalised between two bounds; the same few are asked for again and again."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low = low
        self.high = high

    def __missing__(self, value: float) -> float:
        """Work a value out."""
        result = self[value] = normalised(value, self.low, self.high)
        return result


NOTHING_URGENT: Mapping[str, float] = {"rrc": 0.0, "wtc": 0.0, "dlc": 0.0}


def urgency(item: Item, now: float, settings: Mapping[str, Any]) -> dict[str, float]:
    """Return the three parts of an item's urgency."""
    weights = settings["weights"]
    deadline = item.asks.deadline
    users = settings["deadline_users"]
    due = weights["deadline"] / max(1.0, deadline - now) if deadline and (not users or item.user in users) else 0.0
    return {
        "rrc": resource_urgency(item, settings["urgency"]),
        "wtc": weights["waiting_time"] * max(0.0, now - item.job.submitted),
        "dlc": due,
    }


def resource_urgency(item: Item, urgencies: Mapping[str, float]) -> float:
    """Return the urgency of what an item asks for."""
    if not urgencies:
        return 0.0
    total = 0.0
    for group in item.groups:
        slots = assumed_slots(item) if len(item.groups) == 1 else group.least
        amounts = {"slots": 1, **group.amounts, **group.outside}
        total += slots * sum(urgencies.get(kind, 0.0) * amount for kind, amount in amounts.items())
    return total


def assumed_slots(item: Item) -> float:
    """How many slots of a range count for urgency."""
    how = item.environments[0].urgency_slots
    if isinstance(how, int):
        return how
    return {"min": item.counts[0], "max": item.counts[-1], "avg": (item.counts[0] + item.counts[-1]) / 2}[how]


def prioritise(
    waiting: Sequence[Item],
    now: float,
    settings: Mapping[str, Any],
    tickets: Sequence[float],
    factor: Callable[[JobView], float] = lambda job: 0.0,
) -> None:
    """Set the priority of every item and the terms it is made of; `factor`: of a job by its account's fair share."""
    weights = settings["weights"]
    by_priority, by_urgency, by_ticket = weights["priority"], weights["urgency"], weights["ticket"]
    may_ask = settings["most_asked_priority"]
    same = not (settings["urgency"] or weights["waiting_time"])  # nothing but deadlines is urgent
    if same and not (weights["fair_share"] or any(tickets) or any(item.asks.deadline for item in waiting)):
        _prioritise_as_asked(waiting, settings)
        return
    parts = [NOTHING_URGENT if same and not item.asks.deadline else urgency(item, now, settings) for item in waiting]
    urgencies = [sum(part.values()) for part in parts]
    request = Normalised(LOWEST, HIGHEST)
    urgent = Normalised(min(urgencies, default=0.0), max(urgencies, default=0.0))
    owed = Normalised(0.0, max(tickets, default=0.0))
    for item, part, sum_, own in zip(waiting, parts, urgencies, tickets, strict=True):
        npprio = request[item.job.priority + min(item.asks.priority, may_ask)]
        nurg, ntix = urgent[sum_], owed[own]
        item.terms = {**part, "tickets": own, "npprio": npprio, "nurg": nurg, "ntix": ntix}
        item.priority = by_priority * npprio + by_urgency * nurg + by_ticket * ntix
        if weights["fair_share"]:
            item.terms["nfair"] = factor(item.job)
            item.priority += weights["fair_share"] * item.terms["nfair"]
        if item.job.priority <= BEHIND_ALL:
            item.priority += item.job.priority


def _prioritise_as_asked(waiting: Iterable[Item], settings: Mapping[str, Any]) -> None:
    """Set the priorities where nothing but what was asked tells items apart: equal ones share their terms."""
    weights, may_ask = settings["weights"], settings["most_asked_priority"]
    known: dict[float, tuple[Mapping[str, float], float]] = {}
    for item in waiting:
        requested = item.job.priority + min(item.asks.priority, may_ask)
        if requested not in known:
            npprio, middle = normalised(requested, LOWEST, HIGHEST), normalised(0.0, 0.0, 0.0)
            terms = {**NOTHING_URGENT, "tickets": 0.0, "npprio": npprio, "nurg": middle, "ntix": middle}
            own = weights["priority"] * npprio + weights["urgency"] * middle + weights["ticket"] * middle
            known[requested] = terms, own
        item.terms, item.priority = known[requested]
        if item.job.priority <= BEHIND_ALL:
            item.priority += item.job.priority


def turn(item: Item) -> tuple[tuple[float, ...], float, float, int]:
    """Return when it is an item's turn: by rank and priority, the best first; ties by submission, then id."""
    return item.rank, -item.priority, item.job.submitted, item.place


def ordered(waiting: Sequence[Item]) -> list[Item]:
    """Return items in the order of their turns."""
    return sorted(waiting, key=turn)


def first_for_age(
    view: View, settings: Mapping[str, Any], jobs: Mapping[str, Sequence[Item]], before: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the job that is put first for its age (rainbow/scheduling/patience.py), and what is to be remembered.

    The job put first before stays first while it is overdue; another one comes only `patience_every` seconds later.
    So every job has its turn, and priorities decide about nearly all starts. "": none is put first. An order has
    `starve` in place of this.
    """
    seconds, now, last = settings["patience"], view.now, before.get("job", "")
    if settings["order"] or settings["compat"] == GRID_ENGINE or not seconds:
        return "", {}
    if last in jobs and now - waits_since(cluster_index_of(view), jobs[last][0].job) >= seconds:
        return last, dict(before)
    following = before["at"] + settings["patience_every"] if before else -inf
    if now < following:
        return "", dict(before)

    def group_of(job: JobView) -> str | None:
        return "" if job.id in jobs and not jobs[job.id][0].asks.fault else None

    late = overdue(view, seconds, {"": following}, group_of)
    return (late[0].job, {"job": late[0].job, "at": now}) if late else ("", {})


# ── by an expression ──


class Ranking:
    """What items are worth to an order."""

    def __init__(self, view: View, settings: Mapping[str, Any], origin: float) -> None:
        self.now = view.now
        self.origin = origin
        self.expression = read_order(settings["order"])
        self.most_asked: float = settings["most_asked_priority"]
        self.offset: float = settings["duration_offset"]
        running = {(run.job, run.requestor) for run in view.runs}
        self.running = Counter(requestor for _, requestor in running)
        self.read: Mapping[str, Callable[[Item], float]] = {
            "walltime": self._walltime,
            "length": lambda item: min(item.gang.length or inf, self._walltime(item)),
            "slots": _slots,
            "cores": _cores,
            "waited": lambda item: max(0.0, self.now - item.job.submitted),
            "submitted": lambda item: item.job.submitted - self.origin,
            "priority": self._asked,
            "urgency": lambda item: sum(item.terms.get(part, 0.0) for part in ("rrc", "wtc", "dlc")),
            "tickets": lambda item: item.terms["tickets"],
            "ahead": lambda item: item.place,
            "running_of_owner": lambda item: self.running[item.job.requestor],
        }

    def rank(self, item: Item) -> None:
        """Set an item's rank, and beside its terms the value of its order or why it has none."""

        def get(name: str) -> Any:
            value = self.read[name](item)
            if not isfinite(value):
                raise Unknown(name)
            return admit(name, value)

        value = evaluate_with(self.expression, get)
        if not isinstance(value, Fault) and not is_number(value):
            value = Fault("the result is not a number")
        if isinstance(value, Fault):
            item.unordered, item.rank = value.reason, (-self._asked(item), 1.0, 0.0)
        else:
            item.terms, item.rank = {**item.terms, "order": value}, (-self._asked(item), 0.0, value)
            item.unordered = ""

    def _asked(self, item: Item) -> float:
        return item.job.priority + min(item.asks.priority, self.most_asked)

    def _walltime(self, item: Item) -> float:
        return item.duration - self.offset


def _slots(item: Item) -> int:
    """Return the fewest slots of an item; what only the matcher can place counts one for each task."""
    return item.counts[0] if item.groups else len(item.gang.tasks)


def _cores(item: Item) -> int:
    if not item.groups:
        raise Unknown("cores")
    if len(item.groups) == 1:
        return item.counts[0] * item.groups[0].amounts.get("core", 0)
    return sum(group.least * group.amounts.get("core", 0) for group in item.groups)


def rank(view: View, waiting: Sequence[Item], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Rank items by the setting `order`; return from when on submissions count, to be remembered."""
    if not settings["order"] or not waiting:
        return {}
    first = min(item.job.submitted for item in waiting)
    origin = min(first, float(view.memory.get("origin", first)))
    ranking = Ranking(view, settings, origin)
    for item in waiting:
        ranking.rank(item)
    return {"origin": origin}


def late_first(ordered: Sequence[Item], now: float, starve: Mapping[str, Any]) -> list[Item]:
    """Put the oldest jobs that have waited longer than `after` before all others, at most `first` of them."""
    after = starve.get("after", 0.0)
    late = [item for item in ordered if after and now - item.job.submitted > after and not item.asks.fault]
    if not late:
        return list(ordered)
    oldest = list(dict.fromkeys(item.job.id for item in sorted(late, key=lambda i: (i.job.submitted, i.place))))
    place = {job: k for k, job in enumerate(oldest[: starve["first"]])}
    return sorted(ordered, key=lambda item: place.get(item.job.id, len(place)))


# ── tickets ──

KINDS = ("user", "project", "department", "job")
Owners = Mapping[str, str]  # {user, project, department, job} of an item or a running job


def tickets(
    waiting: Sequence[Item],
    active: Sequence[Owners],
    usage: Mapping[str, float],
    options: Mapping[str, Any],
    length: float | None = None,
) -> list[float]:
    """Return the tickets of every item, in the order given.

    `active` are the owners of every running job, `length` is how long jobs run on average; None: the share tree as
    Grid Engine reads it.
    """
    counts = Counter(item.job.id for item in waiting)
    requests = _asked(waiting, options["max_pending_tasks_per_job"]) if len(counts) < len(waiting) else list(waiting)
    sums = [0.0] * len(requests)  # by place in `requests`
    for letter in options["hierarchy"]:
        places = sorted(
            range(len(requests)), key=lambda n: (-sums[n], -requests[n].asks.job_share, requests[n].place)
        )
        order = [requests[n] for n in places]
        policy = {"O": _override, "F": _functional, "S": _entitled}[letter]
        if letter == "S" and length is not None:
            policy = partial(_in_turn, length)
        for n, more in zip(places, policy(order, active, usage, options), strict=True):
            sums[n] += more
    by_job: dict[str, list[float]] = {}
    for item, owed in zip(requests, sums, strict=True):
        by_job.setdefault(item.job.id, []).append(owed)
    seen: Counter[str] = Counter()
    return [_next(by_job.get(item.job.id, [0.0]), seen, item.job.id) for item in waiting]


def _next(owed: Sequence[float], seen: Counter[str], job: str) -> float:
    """Return the tickets of a job's next item; items beyond those that were asked about have the last one's."""
    seen[job] += 1
    return owed[min(seen[job], len(owed)) - 1]


def _asked(waiting: Sequence[Item], most: int) -> list[Item]:
    """Return the first items of every job; further ones are worth what the last of these is."""
    seen: Counter[str] = Counter()
    reserved = []
    for item in waiting:
        seen[item.job.id] += 1
        if seen[item.job.id] <= most:
            reserved.append(item)
    return reserved


def _override(
    order: Sequence[Item], active: Sequence[Owners], usage: Mapping[str, float], options: Mapping[str, Any]
) -> list[float]:
    """What an operator gives to owners, divided among their jobs, and to single jobs."""
    held = options["override"]
    counts = _counted([*active, *(item.owners for item in order)])

    def of(owners: Owners) -> float:
        total = float(held["jobs"].get(owners["job"], 0.0))
        for kind in KINDS[:3]:
            own = held[f"{kind}s"].get(owners[kind], 0.0)
            total += own / counts[kind, owners[kind]] if options["share_override_tickets"] else own
        return total

    return [of(item.owners) for item in order]


def _functional(
    order: Sequence[Item], active: Sequence[Owners], usage: Mapping[str, float], options: Mapping[str, Any]
) -> list[float]:
    """Divide the functional tickets by the shares of users, projects, departments and jobs."""
    weights = {kind: options["functional_weights"][kind] for kind in KINDS}
    chosen, rest = order[: options["max_functional_jobs"]], order[options["max_functional_jobs"] :]
    running = _counted(active)
    parts = {kind: _parts(kind, chosen, running, options) for kind in KINDS if weights[kind]}
    sums = {kind: sum(part) + _active_parts(kind, active, running, options) for kind, part in parts.items()}
    used = sum(weights[kind] for kind in parts if sums[kind])
    results = [
        options["functional"] * sum(weights[k] / used * parts[k][n] / sums[k] for k in parts if sums[k])
        for n, _ in enumerate(chosen)
    ]
    return [*results, *[results[-1] if results else 0.0] * len(rest)]


def _shares(kind: str, owners: Owners, options: Mapping[str, Any]) -> float:
    if kind == "job":
        return 1.0
    return float(options["functional_shares"][f"{kind}s"].get(owners[kind], 0.0))


def _parts(kind: str, order: Iterable[Item], running: Mapping[Any, int], options: Mapping[str, Any]) -> list[float]:
    seen: Counter[str] = Counter()
    result = []
    for item in order:
        name = item.owners[kind]
        seen[name] += 1
        divided = running.get((kind, name), 0) + seen[name] if options["share_functional_shares"] else 1
        result.append(_shares(kind, item.owners, options) / divided)
    return result


def _active_parts(
    kind: str, active: Iterable[Owners], running: Mapping[Any, int], options: Mapping[str, Any]
) -> float:
    """What running jobs hold of the shares of a kind."""
    if not options["share_functional_shares"]:
        return sum(_shares(kind, owners, options) for owners in active)
    return sum(_shares(kind, owners, options) / running[kind, owners[kind]] for owners in active)


def _in_turn(
    length: float,
    order: Sequence[Item],
    active: Sequence[Owners],
    usage: Mapping[str, float],
    options: Mapping[str, Any],
) -> list[float]:
    """Divide the share tickets by whose turn the share tree says it is."""
    if not options["share_tree"] or not options["share"]:
        return [0.0] * len(order)
    requirements = [(leaf_of(item.owners), charge(item, options["usage_weights"], length)) for item in order]
    places = turns(options["share_tree"], requirements, usage, options["compensation_factor"])
    whole = sum(1 / turn for turn in range(1, len(places) + 1))
    result = [0.0] * len(order)
    for turn, place in enumerate(places, start=1):
        result[place] = options["share"] / turn / whole
    return result


def _entitled(
    order: Sequence[Item], active: Sequence[Owners], usage: Mapping[str, float], options: Mapping[str, Any]
) -> list[float]:
    """Divide the share tickets by what the tree owes each leaf with jobs."""
    if not options["share_tree"] or not options["share"]:
        return [0.0] * len(order)
    leaves = [leaf_of(item.owners) for item in order]
    owed = entitlements(
        options["share_tree"], {*leaves, *map(leaf_of, active)}, usage, options["compensation_factor"]
    )
    seen = Counter(leaf_of(owners) for owners in active)
    result = []
    for leaf in leaves:
        seen[leaf] += 1
        result.append(options["share"] * owed.get(leaf, 0.0) / seen[leaf])
    return result


def _counted(owners: Iterable[Owners]) -> Counter[tuple[str, str]]:
    return Counter((kind, own[kind]) for own in owners for kind in KINDS)
