"""Which queues of a site may have a job: names, state, limits and access, before anything is searched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rainbow.graph.site import IN_DEFAULT, Queue, Site
from rainbow.jobspec.quantities import quantity
from rainbow.matching.model.verdict import Reason, Why
from rainbow.text import in_time, meant, some

if TYPE_CHECKING:
    from rainbow.jobspec import Request, Resource

SHUT = {"inactive": "is inactive", "drain": "is draining", "down": "is down"}


@dataclass(frozen=True)
class Admission:
    """A queue that a job may be tried in; `requires` are the properties of its nodes, `unknown` what is not known."""

    queue: Queue | None
    requires: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def admissions(request: Request, site: Site | None, worker_type: str) -> list[Admission] | Reason:
    """Return the queues to try, in order; a reason where the site has none for the job."""
    if site is None or site.queues is None:
        unknown = [f"queue {name}: the graph names no queues" for name in request.queues[:1]]
        return [Admission(None, (), tuple(unknown))]
    for name in request.queues:
        if name not in site.queues:
            hint = meant(name, site.queues)
            known = hint or f"it has: {', '.join(site.queues)}" if site.queues else "it has none"
            return Reason(Why.QUEUE_UNMET, f"the cluster has no queue {name:.60}; {known}", "queue")
    if not request.queues and site.default not in site.queues:
        return [Admission(None)]
    results: list[Admission] = []
    refusals: list[Reason] = []
    for name in request.queues or (site.default,):
        queue = site.queues[name]
        if refusal := _refusal(request, queue, worker_type):
            refusals.append(Reason(Why.QUEUE_UNMET, refusal, "queue", facts={"queue": name}))
        else:
            requires = queue.requires if request.queues else (IN_DEFAULT,)
            results.append(Admission(queue, requires, tuple(_unknown_access(request, queue))))
    return results or refusals[0]


def called(queue: Queue, site: Site) -> str:
    """Name a queue as people see it."""
    return f"queue {queue.name}{' (default)' if queue.name == site.default else ''}"


def _refusal(request: Request, queue: Queue, worker_type: str) -> str:
    """Return why a queue does not take a job, "" if it may."""
    if queue.state != "up":
        return f"queue {queue.name} {SHUT[queue.state]}"
    duration = request.shortest or request.duration
    if queue.duration is not None and duration > queue.duration:
        return f"{in_time(duration)} requested, queue {queue.name} allows {in_time(queue.duration)}"
    least, most = queue.nodes
    nodes = _nodes(request, worker_type)
    if most is not None and nodes and nodes[0] > most:
        return f"{some(nodes[0], worker_type)} requested, queue {queue.name} allows {most}"
    if nodes and nodes[1] is not None and nodes[1] < least:
        return f"{some(nodes[1], worker_type)} requested, queue {queue.name} requires {least}"
    for kind, limit in queue.most.items():
        if (units := _least(request.resources, kind)) > limit:
            return f"{some(units, kind)} requested, queue {queue.name} allows {limit}"
    if queue.memory_per_node is not None and _memory(request) > queue.memory_per_node:
        return f"queue {queue.name} allows {queue.memory_per_node // 2**20} MiB of memory a node"
    return _no_access(request, queue)


def _no_access(request: Request, queue: Queue) -> str:
    """Return why a queue is not open to an account or quality of service that a job names, "" if it is."""
    named = (("account", request.account, "account"), ("qos", request.qos, "quality of service"))
    for key, value, shown in named:
        allowed = queue.access.get(f"allow-{key}", (value,))
        if value and (value not in allowed or value in queue.access.get(f"deny-{key}", ())):
            return f"queue {queue.name} is not open to {shown} {value:.60}"
    return ""


def _unknown_access(request: Request, queue: Queue) -> Iterator[str]:
    if groups := queue.access.get("allow-group"):
        yield f"queue {queue.name} is open to groups {', '.join(groups)}: whether yours is among them is not known"
    if not request.account and (accounts := queue.access.get("allow-account")):
        yield f"queue {queue.name} is open to accounts {', '.join(accounts)}: name one with --account"


def _nodes(request: Request, worker_type: str) -> tuple[int, int | None] | None:
    """Return the least and the most nodes that a request names, None if it names none."""
    results = [
        part.count
        for tree in request.resources
        for part in (tree, *(tree.children if tree.is_slot else ()))
        if part.type == worker_type
    ]
    if not results:
        return None
    most = [count.max for count in results]
    return sum(count.min for count in results), None if None in most else sum(n for n in most if n)


def _least(trees: Sequence[Resource], kind: str, each: int = 1) -> int:
    """Return how many units of a type trees ask for at least; of slots in all, only those in all."""
    total = 0
    for tree in trees:
        many = each * tree.count.min if not tree.total else tree.count.min
        total += many if tree.type == kind else 0
        total += _least(tree.children, kind, many)
    return total


def _memory(request: Request) -> int:
    """Return the bytes of memory that one node must have at least: beside its slots, or in one of them."""
    results = [0]
    for tree in request.resources:
        for part in tree.walk():
            below = [child for child in part.children if child.type == "memory"]
            results += [child.count.min * quantity(child.unit)[1] for child in below]
    return max(results)
