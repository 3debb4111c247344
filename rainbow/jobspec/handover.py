"""A task's request as plain values, for a site that schedules for itself.

resources   the trees that hold its slots: {type, count, unit, exclusive, label, needs, with}
constraint  as RFC 31 writes it
system      what `attributes.system` says for resource managers
site        `attributes.site`: options of one kind of resource manager, as written
script      text to run instead of the command
gang        how many tasks must start together with it, itself included
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from rainbow.jobspec.request import CONTAINMENT, Constraint, Count, Request, Resource

FOR_SITES = (
    *("output", "error", "input", "comment", "requeue", "export", "deadline", "priority", "queue"),
    *("licenses", "switches", "prefer", "contiguous", "exclusive", "min_duration", "umask"),
)


def handover(request: Request, labels: Collection[str], gang: int, name: str, requestor: str) -> dict[str, Any]:
    """Return what one task asks of a site, as values of JSON; `labels` are its slots, none: all."""
    system, site = request.attributes.get("system"), request.attributes.get("site")
    system = system if isinstance(system, Mapping) else {}
    return {
        "name": name,
        "requestor": requestor,
        "resources": [tree_document(tree) for tree in trees_of(request, labels)],
        "constraint": constraint_document(request.constraint) if request.constraint else None,
        "system": {key: system[key] for key in FOR_SITES if system.get(key) is not None},
        "site": site if isinstance(site, Mapping) else {},
        "script": request.script,
        "gang": gang,
    }


def starts_once(request: Request) -> bool:
    """Return whether a job says that what has started of it must never start again (`requeue: false`)."""
    system = request.attributes.get("system")
    return isinstance(system, Mapping) and system.get("requeue") is False


def trees_of(request: Request, labels: Collection[str]) -> Sequence[Resource]:
    """Return the trees of the preferred variant that hold one of these slots; all if none is named."""
    trees = request.resources
    return [tree for tree in trees if tree.within or not labels or any(part.label in labels for part in tree.walk())]


def least(trees: Iterable[Resource], kind: str, labels: Collection[str] = ()) -> int:
    """Return how many units of a type trees ask for at least; of slots only those with one of the labels, if any.

    >>> slot = Resource("slot", Count(3, 3), label="a", children=(Resource("core", Count(4, 4)),))
    >>> least([Resource("node", Count(2, 2), children=(slot,))], "core"), least([slot], "slot", ["b"])
    (24, 0)
    """
    result = 0
    for tree in trees:
        here = 1 if tree.type == kind and (not labels or tree.label in labels) else 0
        result += tree.count.min * (here + least(tree.children, kind, labels))
    return result


def tree_document(part: Resource) -> dict[str, Any]:
    """Return a request and all below it as values of JSON."""
    answer: dict[str, Any] = {"type": part.type, "count": _count(part.count)}
    options = {"unit": part.unit, "exclusive": part.exclusive, "label": part.label}
    answer |= {key: value for key, value in options.items() if value}
    answer |= {"total": True} if part.total else {}
    answer |= {"at_most": dict(part.at_most)} if part.at_most else {}
    answer |= {"within": part.within} if part.within else {}
    answer |= {"model": model} if (model := model_of(part)) else {}
    if others := [need.subsystem for need in part.needs if need.subsystem != CONTAINMENT]:
        answer["needs"] = others
    return {**answer, "with": [tree_document(child) for child in part.children]} if part.children else answer


def model_of(part: Resource) -> str:
    """Return the model that a request requires of its vertices, "" for any."""
    conditions = (one for need in part.needs if need.subsystem == CONTAINMENT for one in need.conditions)
    return next((str(one.options.get("value")) for one in conditions if one.options.get("field") == "model"), "")


def _count(count: Count) -> int | dict[str, Any]:
    if count.max == count.min:
        return count.min
    answer = {"min": count.min, "max": count.max}
    plain = (count.operator, count.operand) == ("+", 1) and not len(count.listed)
    return answer if plain else {**answer, "steps": True}


def constraint_document(constraint: Constraint) -> dict[str, Any]:
    """Return a constraint as RFC 31 writes it."""
    values: list[Any] = list(constraint.values) or [constraint_document(each) for each in constraint.operands]
    return {constraint.operator: values}
